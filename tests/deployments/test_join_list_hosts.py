"""What a runner does with a real sshd: N at once, failures apart, hostile output, cancelled, taken over."""

import threading
import time

import pytest
from asgiref.sync import async_to_sync

from console.models import Alert
from deployments.models import JoinMany, Server
from deployments.models.join_many import Phase, RowState
from deployments.services import join_many, join_script, ssh
from deployments.services.join_runner import MOST_LOG, Runner, bounded
from tests.conftest import free_port
from tests.deployments.join_lists import (  # noqa: F401
    KEY,
    OTHER,
    PASSWORD,
    asking,
    codes,
    fixture_administrator,
    fixture_english,
    fixture_host,
    fixture_page,
    fixture_started,
    made,
    states,
)
from tests.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("english")]


def hosts(host, ports):
    return "".join(f"{host.address},root,{port},,,kp-{port}\n" for port in ports)


def read_keys(many):
    many = JoinMany.objects.get(pk=many.pk)
    async_to_sync(Runner(many, join_many.claim(many)).read_keys)()
    many.refresh_from_db()
    return many


def let_join(many, script, monkeypatch, credentials=None):
    """Join with `script` in place of the console's own command, and a runner that can be stopped."""
    monkeypatch.setattr(join_script, "commands", lambda enrolment: [join_script.Command("sh", script)])
    chosen = {row.n for row in many.rows.filter(state=RowState.KEYED)}
    join_many.confirm(many, chosen, by=many.made_by)
    many.refresh_from_db()
    runner = Runner(many, join_many.claim(many))
    async_to_sync(runner.join)(credentials or ssh.Credentials(PASSWORD))
    many.refresh_from_db()
    return many


def test_never_more_at_once_than_asked(host, administrator, monkeypatch):
    many = read_keys(made(administrator, hosts(host, range(2201, 2207)), at_once=2))
    assert many.phase == Phase.ASKING
    script = "d=/tmp/now; mkdir -p $d; : >$d/$$; sleep 0.7; ls $d | wc -l; rm $d/$$"
    ended = let_join(many, script, monkeypatch)
    assert ended.phase == Phase.ENDED and states(ended) == ["joined"] * 6
    seen = [int(row.log) for row in ended.rows.all()]
    assert max(seen) == 2 and all(row.took_s > 0.7 for row in ended.rows.all())


def test_each_failure_is_its_own_and_the_others_go_on(host, administrator, monkeypatch):
    text = hosts(host, [2201, free_port()]) + f"{host.address},nobody-here,2202,,,kp-x\nkp-99.invalid\n"
    many = read_keys(made(administrator, text))
    assert states(many) == ["keyed", "failed", "keyed", "failed"]
    assert codes(many) == [None, "refused", None, "no_name"]
    ended = let_join(many, "echo said this; echo and that >&2; exit 3", monkeypatch)
    assert states(ended) == ["failed"] * 4
    assert codes(ended) == ["script", "refused", "auth", "no_name"]
    first = ended.rows.first()
    assert first.log == "said this\nand that\n" and first.problem["detail"] == "and that"
    assert not Server.objects.exists()  # who never joined leaves no trace
    # Those that failed are tried again, with what was wrong mended.
    ended.rows.filter(n=3).update(user="root")
    join_many.retry(ended, by=administrator)
    again = let_join(read_keys(ended), "echo fine", monkeypatch)
    assert states(again) == ["joined", "failed", "joined", "failed"]
    assert again.rows.first().server.name == "kp-2201"


def test_hostile_output_is_bounded_and_harmless(host, page, administrator, monkeypatch):
    many = read_keys(made(administrator, hosts(host, [2201])))
    script = r"head -c 300000 /dev/zero | tr '\0' 'a'; printf '\033[2J\000\377<script>alert(1)</script>\n'; exit 1"
    ended = let_join(many, script, monkeypatch)
    row = ended.rows.get()
    assert len(row.log) <= MOST_LOG and "\x1b" not in row.log and "\0" not in row.log
    body = page.get(f"/servers/join/many/{many.pk}/lines/1/").content.decode()
    assert "<script>alert" not in body and "&lt;script&gt;alert(1)" in body
    assert bounded("a" * MOST_LOG) == "a" * MOST_LOG


def test_cancelling_cuts_off_what_runs_and_voids_its_command(host, administrator, monkeypatch):
    many = read_keys(made(administrator, hosts(host, [2201, 2202, 2203]), at_once=2))
    done = threading.Event()

    def cancel():
        until(lambda: many.rows.filter(state=RowState.INSTALLING).count() == 2)
        join_many.cancel(many, by=administrator)
        done.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    began = time.monotonic()
    ended = let_join(many, "sleep 60", monkeypatch)
    thread.join()
    assert done.is_set() and time.monotonic() - began < 20
    assert states(ended) == ["cancelled"] * 3 and codes(ended) == ["cancelled"] * 3
    assert ended.phase == Phase.ENDED and not Server.objects.exists()


def test_a_second_runner_takes_over_and_the_first_lets_go(host, administrator, monkeypatch):
    many = read_keys(made(administrator, hosts(host, [2201])))
    monkeypatch.setattr(join_script, "commands", lambda enrolment: [join_script.Command("sh", "sleep 60")])
    join_many.confirm(many, {1}, by=administrator)
    many.refresh_from_db()
    runner = Runner(many, join_many.claim(many))
    join_many.claim(many)
    async_to_sync(runner.join)(ssh.Credentials(PASSWORD))
    many.refresh_from_db()
    assert runner.why == "replaced" and many.phase == Phase.JOINING  # it is the other's now


def test_a_key_that_changes_between_confirming_and_joining_is_refused(host, administrator, monkeypatch):
    many = read_keys(made(administrator, hosts(host, [2204])))
    many.rows.update(key=KEY)
    ended = let_join(many, "echo ran", monkeypatch)
    assert codes(ended) == ["key_changed"] and ended.rows.get().log == ""
    assert Alert.objects.filter(subject=f"host:{host.address}:2204", ended_at=None).exists()


def test_the_console_saying_no_is_the_rows_problem(host, administrator, monkeypatch, settings):
    many = read_keys(made(administrator, hosts(host, [2201])))
    settings.PUBLIC_URL = "http://192.0.2.1:8000"  # plain text, which is refused
    ended = let_join(many, "echo ran", monkeypatch)
    assert codes(ended) == ["console"] and "TLS" in ended.rows.get().problem["detail"]
