"""Driver and firmware on the console's side: digests, plans, locks, what follows where one fails, pages and REST."""

import hashlib
import json

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone, translation

from console import alerts
from console.errors import Conflict, ConsoleError, Invalid, NotAllowed
from console.models import Alert, ApiToken, User
from deployments import ingest
from deployments.models import Job, JobState, Npu, Server, ServerChange, Step, VendorPackage
from deployments.services import (
    campaign_plan,
    filling,
    host_changes,
    installs,
    jobs,
    lifecycle,
    packages,
    servers,
    stacks,
    waiting,
)
from deployments.stacks import actions, frozen
from tests.deployments.stack_facts import facts
from tests.job_fixtures import Spool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
DRIVER = "Ascend-hdk-910b-npu-driver_25.5.2_linux-aarch64.run"
FIRMWARE = "Ascend-hdk-910b-npu-firmware_7.8.0.6.201.run"
WISH = {"driver": "25.5.2", "firmware": "7.8.0.6.201"}
OLD = {"driver": "25.0.rc1.1", "firmware": "7.7.0.1.231", "firmware_range": ["7.0.0–7.9.99"], "driver_whole": True}


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def admin():
    return User.objects.create_user("root", role="administrator")


@pytest.fixture
def operator():
    return User.objects.create_user("li", role="operator")


@pytest.fixture
def known(admin):
    for n, name in enumerate((DRIVER, FIRMWARE), 1):
        packages.put(name, f"{n}" * 64, by=admin)


@pytest.fixture
def server():
    now = timezone.now()
    made = Server.objects.create(name="kp-1", family="910B3", facts=facts("A2", root="helper", **OLD), last_seen_at=now)
    for n in range(2):
        Npu.objects.create(server=made, device_index=n, npu_id=n, chip_id=0, bus_id=f"0000:C{n}:00.0")
    return made


def queue(server, by, **more):
    return jobs.queue_job(server, "drivers", {**WISH, **more}, by=by)


# ---------- digests ----------


def test_an_administrator_says_which_file_is_the_right_one(admin, operator):
    row = packages.put(f" {DRIVER} ", "AB" * 32, by=admin, source="the vendor's page")
    assert (row.name, row.sha256) == (DRIVER, "ab" * 32)
    packages.put(DRIVER, "cd" * 32, by=admin)
    assert packages.digests([DRIVER, FIRMWARE]) == {DRIVER: "cd" * 32}
    with pytest.raises(NotAllowed):
        packages.put(DRIVER, "ef" * 32, by=operator)
    with pytest.raises(NotAllowed):
        packages.remove(DRIVER, by=operator)
    for name, digest in (("x.run", "ab" * 32), ("../" + DRIVER, "ab" * 32), (DRIVER, "ab"), (DRIVER, "0" * 64),
                         (DRIVER + "\n;", "ab" * 32), ("", "")):  # fmt: skip
        with pytest.raises(Invalid):
            packages.put(name, digest, by=admin)
    packages.remove(DRIVER, by=admin)
    assert not VendorPackage.objects.exists()


def test_the_command_reads_the_files(admin, tmp_path, capsys):
    file = tmp_path / DRIVER
    file.write_bytes(b"driver")
    call_command("packages", str(file))
    digest = hashlib.sha256(b"driver").hexdigest()
    assert packages.digests([DRIVER]) == {DRIVER: digest} and VendorPackage.objects.get().size == 6
    call_command("packages")
    assert capsys.readouterr().out.splitlines()[-1] == f"{digest}  {DRIVER}"
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("packages", str(tmp_path / "none.run"))
    (tmp_path / "other.txt").touch()
    with pytest.raises(CommandError, match="no file name of a package"):
        call_command("packages", str(tmp_path / "other.txt"))


def test_a_plan_without_a_digest_says_so_and_is_not_queued(server, operator):
    with pytest.raises(Conflict, match=f"No SHA-256 is known of {FIRMWARE}") as refused:
        queue(server, operator)
    assert refused.value.code == "gaps" and not Job.objects.exists()


# ---------- jobs ----------


def test_the_job_carries_the_digests_and_holds_the_server_and_every_npu(server, operator, known):
    job = queue(server, operator)
    steps = frozen.read(job.params["plan"])
    asked = [step.argv for step in steps if step.needs_root and step.argv[0].startswith("package-")]
    assert asked == [["package-upgrade", FIRMWARE, "2" * 64], ["package-upgrade", DRIVER, "1" * 64]]
    assert job.locks[:2] == ["stack", "server"] and {"npu:0000:C0:00.0", "npu:0000:C1:00.0/0"} <= set(job.locks)
    assert job.params["before"] == "25.0.rc1.1 7.7.0.1.231"
    assert set(filling.asked(job)) == {"driver", "firmware"}
    other = jobs.queue_job(server, "reboot", {}, by=operator)
    assert other.waiting  # for the one that changes the driver


def test_an_npu_that_is_cordoned_does_not_hold_up_its_own_driver(server, operator, known, admin):
    servers.cordon(server, "0000:C0:00.0", by=admin, reason="ECC")
    server.refresh_from_db()
    job = queue(server, operator)
    assert not job.waiting and "npu:0000:C0:00.0" not in job.locks and "npu:0000:C1:00.0" in job.locks


@pytest.mark.parametrize(("root", "code"), [("none", "host_layer"), (None, "host_layer"), ("old", "old_root_helper")])
def test_without_a_way_to_root_it_is_refused_in_words(server, operator, known, root, code):
    server.facts["root"] = root
    server.save()
    with pytest.raises(Conflict) as refused:
        queue(server, operator)
    assert refused.value.code == code and "root" in refused.value.do


def test_an_install_changes_the_host_layer_and_a_shared_cann_where_there_is_a_root_helper(
    server, operator, admin, known
):
    stack = "vllm-ascend-0.23.0"
    wanted = {"stack": stack, "cann": "shared", **WISH}
    made = installs.plan_of(server, stacks.find(stack), installs.options_for(server, wanted))
    for step in made.to_run:
        if step.action and step.action[0].startswith("package-"):
            packages.put(step.action[1], "a" * 64, by=admin)
    job = jobs.queue_job(server, "install", wanted, by=operator)
    roots = [step.argv[0] for step in frozen.read(job.params["plan"]) if step.needs_root]
    assert roots[-3:] == ["package-toolkit-first", "package-part-first", "package-nnal-first"]
    assert "package-upgrade" in roots and "server" in job.locks
    assert all(step.argv[2] == "a" * 64 for step in frozen.read(job.params["plan"])
               if step.needs_root and step.argv[0].startswith("package-"))  # fmt: skip


def test_a_server_restarts_by_itself_only_where_that_was_asked_for(server, operator, known):
    by_hand, at_night, at_once = (
        frozen.read(installs.fill_drivers(server, {**WISH, **more})["plan"])
        for more in ({}, {"restart": "window", "window": "22:00-05:00"}, {"restart": "now"})
    )
    assert [step.argv for step in by_hand if step.reboot] == [[]]
    for steps in (at_night, at_once):
        assert [(step.argv, step.needs_root) for step in steps if step.reboot] == [(["reboot", "{attempt}"], True)]
    assert any("deployments.stacks.window" in step.argv for step in at_night)
    with pytest.raises(Invalid, match="window"):
        installs.fill_drivers(server, {**WISH, "restart": "window"})


def test_a_downgrade_warns_of_every_cann_that_needs_the_newer_driver(server):
    told = facts("A2", root="helper", cann=["9.1.0"], **{**OLD, "driver": "26.0.RC1", "firmware": "9.0.0.0.205"})
    server.facts = told
    server.save()
    made = stacks.host_plan_for(server, stacks.read_options({"driver": "25.0.RC1.1", "firmware": "7.7.0.1.231"}), ())
    words = " ".join(text.en for text in made.warnings)
    assert made.mode == "downgrade" and "no usable NPU" in words and "CANN 9.1.0 on this server needs" in words
    assert [step.key for step in made.steps if step.key.startswith("uninstall")] == [
        "uninstall_driver", "uninstall_firmware",
    ]  # fmt: skip


def test_a_stack_takes_no_driver_down_on_its_way(server, operator, known):
    server.facts = facts("A2", root="helper", **{**OLD, "driver": "26.0.RC1", "firmware": "9.0.0.0.205"})
    server.save()
    with pytest.raises(Conflict) as refused:
        jobs.queue_job(server, "install", {"stack": "vllm-ascend-0.23.0", **WISH}, by=operator)
    assert refused.value.code == "downgrade" and "Driver and firmware" in refused.value.do


# ---------- what follows ----------


def ended(job, states, state=JobState.FAILED):
    """The job as its server would have told of it: `states` of the first steps, the others skipped."""
    attempt = job.attempts.get()
    for n, step in enumerate(frozen.read(job.params["plan"]), 1):
        told = states[n - 1] if n <= len(states) else "skipped"
        Step.objects.create(attempt=attempt, n=n, title_zh=step.title.zh, title_en=step.title.en, argv=[], state=told)
    attempt.state = job.state = state
    job.reason = ["原因", "the reason"]
    attempt.save()
    job.save()
    host_changes.ended(job, attempt)
    job.server.refresh_from_db()
    return job.server


def place(job, key):
    """How many steps come before the first that root does with this action."""
    return next(n for n, step in enumerate(frozen.read(job.params["plan"])) if step.argv[:1] == [key])


def test_a_driver_that_fails_takes_the_server_into_maintenance_with_an_alert_and_a_way_out(
    server, operator, known, client
):
    job = queue(server, operator)
    n = place(job, "package-upgrade")
    found = ended(job, ["succeeded"] * n + ["failed"])
    assert found.maintenance and found.host_failure["job"] == job.pk
    assert found.host_failure["before"] == {"driver": "25.0.rc1.1", "firmware": "7.7.0.1.231"}
    assert found.host_failure["wanted"] == {"firmware": "7.8.0.6.201", "driver": "25.5.2"}
    alert = Alert.objects.get(name=host_changes.ALERT, ended_at=None)
    assert alert.severity == "critical" and "kp-1" in alert.what[1] and alert.link == "/servers/kp-1/"
    assert ServerChange.objects.filter(server=found, field="maintenance").exists()
    client.force_login(operator, "django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "en"
    page = client.get("/servers/kp-1/").content.decode()
    assert "the reason" in page and "25.0.rc1.1" in page and "/servers/kp-1/drivers/?driver=25.5.2" in page
    assert f'· <a href="/jobs/{job.pk}/">#{job.pk}</a>' in " ".join(page.split())  # who has begun the maintenance
    # The way out starts in maintenance, any other job waits; and when it succeeds what failed is settled.
    again = queue(found, operator)
    assert not again.waiting and jobs.queue_job(found, "reboot", {}, by=operator).waiting
    found = ended(again, ["succeeded"] * len(frozen.read(again.params["plan"])), JobState.SUCCEEDED)
    assert found.host_failure is None and found.maintenance
    assert not Alert.objects.filter(name=host_changes.ALERT, ended_at=None).exists()


def test_what_a_server_tells_of_a_failed_driver_does_all_that(server, operator, known):
    job = queue(server, operator)
    attempt, failing = job.attempts.get(), place(job, "package-upgrade") + 1
    spool = Spool(attempt.pk)
    told = [spool.event(e="started", attempt=attempt.pk, pid=1, host="h")]
    for n, step in enumerate(frozen.read(job.params["plan"]), 1):
        state = "succeeded" if n < failing else "failed" if n == failing else "skipped"
        told += [spool.event(e="step", n=n, of=20, title=list(step.title), argv=step.argv),
                 spool.event(e="step_end", n=n, state=state, exit=1, took_s=1.0)]  # fmt: skip
    told.append(spool.event(e="ended", state="failed", exit=1, reason=["坏", "broken"]))
    ingest.store({server.pk: told})
    ingest.store({server.pk: told})  # sent again, it is told once
    server.refresh_from_db()
    assert server.maintenance and server.host_failure["reason"] == ["坏", "broken"]
    assert Alert.objects.get(name=host_changes.ALERT).count == 1


@pytest.mark.parametrize("begun", [False, True])
def test_what_fails_before_anything_was_changed_leaves_the_server_in_use(server, operator, known, begun):
    job = queue(server, operator)
    n = place(job, "package-upgrade")
    found = ended(job, ["succeeded"] * (n + 1) + ["cancelled"] if begun else ["succeeded"] * (n - 1) + ["failed"])
    assert found.maintenance is begun and bool(found.host_failure) is begun


def test_an_environment_that_fails_after_a_good_driver_is_no_failure_of_the_host(server, operator, admin, known):
    job = queue(server, operator)
    part = frozen.host_part(frozen.read(job.params["plan"]))
    assert part == len(frozen.read(job.params["plan"]))
    found = ended(job, ["succeeded"] * part)  # what comes behind it in a plan of a stack has failed
    assert not found.maintenance and found.host_failure is None


def test_who_ends_the_maintenance_has_settled_it(server, operator, known):
    job = queue(server, operator)
    found = ended(job, ["succeeded"] * place(job, "package-upgrade") + ["failed"])
    servers.set_maintenance(found, False, by=operator)
    found.refresh_from_db()
    assert found.host_failure is None and not alerts.counts().open


# ---------- pages and REST ----------


@pytest.fixture
def browser(client):
    def sign_in(user):
        client.force_login(user, "django.contrib.auth.backends.ModelBackend")
        client.cookies["django_language"] = "en"
        return client

    return sign_in


def test_the_page_shows_the_plan_and_queues_what_was_confirmed(server, operator, known, browser):
    page = browser(operator)
    assert "Name the versions" in page.get("/servers/kp-1/drivers/").content.decode()
    shown = page.get("/servers/kp-1/drivers/", WISH).content.decode()
    assert f"bash {actions.PACKAGES}/{FIRMWARE} --nox11 --upgrade --quiet" in shown and "An upgrade" in shown
    seen = installs.digest(stacks.host_plan_for(server, stacks.read_options(WISH), None))
    for given, words in (({"seen": "x", "confirm": "kp-1"}, "another one than was shown"),
                         ({"seen": seen, "confirm": "kp-2"}, "not the name of the server")):  # fmt: skip
        answer = page.post("/servers/kp-1/drivers/", {**WISH, **given})
        assert answer.status_code in (409, 422) and words in answer.content.decode() and not Job.objects.exists()
    answer = page.post("/servers/kp-1/drivers/", {**WISH, "seen": seen, "confirm": "kp-1", "ticket": "CHG-7"})
    assert answer.url == f"/jobs/{Job.objects.get().pk}/" and Job.objects.get().ticket == "CHG-7"
    assert page.get("/servers/kp-1/drivers/", {"driver": "1; rm"}).status_code == 422


def test_retry_with_changes_of_such_a_job_leads_to_its_own_page(server, known, operator, browser):
    job, page = queue(server, operator), browser(operator)
    answer = page.get(f"/jobs/new?again={job.pk}")
    assert answer.status_code == 302
    assert answer.url == "/servers/kp-1/drivers/?driver=25.5.2&firmware=7.8.0.6.201"
    shown = page.get(answer.url).content.decode()
    assert 'value="7.8.0.6.201"' in shown and "sh -c &#x27;getent passwd" in shown  # as a shell takes it


def test_files_are_called_as_the_vendor_writes_versions(server):
    server.facts = facts("A2", root="helper", **{**OLD, "driver_whole": False})
    made = stacks.host_plan_for(server, stacks.read_options({"driver": "25.0.rc1.1"}), ())
    files = [step.package for step in made.steps if step.key == "check_driver"]
    assert files == [f"{actions.PACKAGES}/Ascend-hdk-910b-npu-driver_25.0.RC1.1_linux-aarch64.run"]


def test_viewers_change_nothing(server, known, browser):
    page = browser(User.objects.create_user("v", role="viewer"))
    assert page.get("/servers/kp-1/drivers/").status_code == 403
    assert page.post("/servers/kp-1/drivers/", WISH).status_code == 403
    page.post("/packages/", {"lines": f"{'a' * 64}  {FIRMWARE}"})
    assert packages.digests([FIRMWARE]) == {FIRMWARE: "2" * 64}


def test_the_page_of_packages_takes_lines_of_sha256sum(admin, browser):
    page = browser(admin)
    page.post("/packages/", {"lines": f"{'a' * 64}  ./in/{DRIVER}\n{'b' * 64} *{FIRMWARE}\n", "source": "USB"})
    assert packages.digests([DRIVER, FIRMWARE]) == {DRIVER: "a" * 64, FIRMWARE: "b" * 64}
    assert "a" * 64 in page.get("/packages/").content.decode()
    assert "no lines of sha256sum" in page.post("/packages/", {"lines": "x"}, follow=True).content.decode()
    page.post("/packages/", {"forget": DRIVER})
    assert set(packages.digests([DRIVER, FIRMWARE])) == {FIRMWARE}


def test_rest_knows_packages_and_plans(server, admin, client):
    _row, token = ApiToken.make(admin, "administrator")
    headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}

    def call(method, path, body=None):
        answer = getattr(client, method)(
            f"/api/v1{path}", *([json.dumps(body)] if body else []), content_type="application/json", headers=headers
        )
        return answer.status_code, answer.json()

    status, told = call("post", "/packages", {"name": DRIVER, "sha256": "a" * 64, "size": 7})
    assert status == 200 and told["added_by"] == "root"
    assert call("post", "/packages", {"name": "x", "sha256": "a" * 64})[0] == 422
    assert [one["name"] for one in client.get("/api/v1/packages", headers=headers).json()["packages"]] == [DRIVER]
    plan = client.get("/api/v1/servers/kp-1/driver-plan", WISH, headers=headers).json()
    assert plan["host_layer"] == "upgrade" and FIRMWARE in plan["gaps"][0]["en"] and len(plan["gaps"]) == 1
    assert plan["now"] == {"driver": "25.0.rc1.1", "firmware": "7.7.0.1.231", "whole": True, "paired": None}
    assert call("delete", f"/packages/{DRIVER}")[0] == 200 and call("delete", f"/packages/{DRIVER}")[0] == 404


def test_the_way_out_starts_in_maintenance():
    assert "drivers" in waiting.IN_MAINTENANCE


def test_refusals_are_sentences(server, operator):
    for params in ({}, {"driver": "25.5.2"}, {"restart": "never", **WISH}, {"plan": "[]", **WISH}):
        with pytest.raises(ConsoleError) as refused:
            jobs.queue_job(server, "drivers", params, by=operator)
        assert refused.value.what and refused.value.do


@pytest.mark.parametrize("simulated", [False, True])
def test_a_campaign_plans_what_the_job_will_be_filled_in_with(server, known, simulated):
    """Else each server would be held back at its turn, for its plan is another one than was approved."""
    Server.objects.update(simulated=simulated)
    server = Server.objects.get()
    choices = {"stack": "vllm-ascend-0.23.0", "cann": "own", **WISH}
    line = campaign_plan.Planner(stacks.find(choices["stack"]), choices).lines([server])[0]
    assert line.word == "reboots", line.because
    assert line.digest == installs.digest_of(installs.fill_install(server, choices)["plan"])


def test_who_is_decommissioned_leaves_no_failed_change_behind(server, operator, admin, known):
    job = queue(server, operator)
    found = ended(job, ["succeeded"] * place(job, "package-upgrade") + ["failed"])
    gone = lifecycle.decommission(found, found.name, by=admin)
    gone.refresh_from_db()
    assert gone.is_gone and gone.host_failure is None and not gone.maintenance
    assert not Alert.objects.filter(name=host_changes.ALERT, ended_at=None).exists()
