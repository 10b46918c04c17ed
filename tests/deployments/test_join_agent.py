"""What joining says on the server where something is in the way; no console is needed for it."""

import dataclasses
import email.utils
import json
import os
import subprocess
import time

import pytest

from console import streams
from deployments import locks
from deployments.agent import config, install, join, processes, warily
from tests.conftest import free_port

FIELDS = {"server_id": 7, "name": "kp-01", "prefix": "h:7", "key": "ab" * 32}


def made(tmp_path, url):
    return config.parse(tmp_path / "config.json", {**FIELDS, "redis_url": url, "state_dir": str(tmp_path / "state")})


class Console:
    """Answers every question with the date `offset_s` from now, and keeps what is reported."""

    def __init__(self, offset_s=0.0):
        self.offset_s, self.told = offset_s, []

    def ask(self, method, path, body=None):
        return 200, b"used\n\n", email.utils.formatdate(time.time() - self.offset_s, usegmt=True)

    def report(self, code, detail):
        self.told.append((code, detail))


@pytest.mark.parametrize(
    ("offset_s", "told"), [(0, []), (50, []), (600, [("clock", "+600 s")]), (-3600, [("clock", "-3600 s")])]
)
def test_a_clock_that_is_off_is_told_and_keeps_nobody_out(offset_s, told):
    console = Console(offset_s)
    join.check_clock(console)
    assert [code for code, _detail in console.told] == [code for code, _detail in told]
    for (_code, said), (_same, expected) in zip(console.told, told, strict=True):
        assert abs(float(said.split()[0]) - float(expected.split()[0])) <= 1


def test_a_name_that_nobody_knows_and_a_port_where_nobody_listens(tmp_path):
    with pytest.raises(join.Stopped) as stopped:
        join.check_redis(made(tmp_path, "redis://h7:x@no-such-host.invalid:6379/0"))
    assert stopped.value.code == "name"
    assert "no-such-host.invalid" in stopped.value.text.en
    with pytest.raises(join.Stopped) as stopped:
        join.check_redis(made(tmp_path, f"redis://h7:x@127.0.0.1:{free_port()}/0"))
    assert stopped.value.code == "redis"
    console = join.Console(f"http://127.0.0.1:{free_port()}", "token", "")
    with pytest.raises(join.Stopped) as stopped:
        console.ask("GET", "state")
    assert stopped.value.code == "port"
    console.report("port", "nobody hears this")


def test_credentials_are_good_or_not(tmp_path, valkey):
    valkey.client().execute_command("ACL", "SETUSER", "h7", *streams.acl_rules(7, "pw7"))
    assert join.check_redis(made(tmp_path, f"redis://h7:pw7@127.0.0.1:{valkey.port}/0"))
    assert not join.check_redis(made(tmp_path, f"redis://h7:other@127.0.0.1:{valkey.port}/0"))


def test_a_config_is_readable_by_its_owner_alone_and_kept_only_where_it_is_this_servers(tmp_path):
    place = install.Install(tmp_path, "http://console", "", 7)
    place.config.parent.mkdir()
    data = {**FIELDS, "redis_url": "redis://x", "state_dir": str(place.state)}
    join.write_config(place, data)
    assert place.config.stat().st_mode & 0o777 == 0o600
    assert json.loads(place.config.read_text()) == data
    assert join._kept(place).server_id == 7
    assert join._kept(dataclasses.replace(place, server_id=8)) is None
    place.config.write_text("{")
    assert join._kept(place) is None


def test_only_what_joining_made_is_removed(tmp_path):
    place = install.Install(tmp_path / "agent", "http://console", "", 7)
    for name in ("etc", "state/attempts", "mine"):
        (place.prefix / name).mkdir(parents=True)
    (place.prefix / "current").symlink_to(tmp_path / "mine-too")
    (tmp_path / "mine-too").mkdir()
    place.save()
    assert install.read(place.prefix) == place
    install.remove(place)
    assert [path.name for path in place.prefix.iterdir()] == ["mine"]
    assert (tmp_path / "mine-too").is_dir()


def test_a_pid_that_was_given_out_again_is_left_alone(tmp_path):
    place = install.Install(tmp_path, "http://console", "", 7)
    place.pid_file.parent.mkdir()
    place.pid_file.write_text(json.dumps({"pid": os.getpid(), "started": 1, "boot_id": "another"}))
    assert install.keeper(place) is None
    install.stop(place)


@pytest.mark.parametrize("trap", [os.symlink, os.link, lambda _target, path: os.mkfifo(path)])
def test_a_log_that_leads_elsewhere_is_not_written(tmp_path, trap):
    """The agent's account owns the folder of logs, and root opens one there."""
    target, log = tmp_path / "shadow", tmp_path / "keep.log"
    target.write_text("root's own")
    trap(target, log)
    with pytest.raises(OSError):
        warily.open_log(log)
    log.unlink()
    os.close(warily.open_log(log))
    assert (log.read_text(), target.read_text()) == ("", "root's own")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the agent's account must be another")
@pytest.mark.parametrize("path", ["agent.lock", "attempts/a1-1-00000000/pid"])
def test_root_ends_nobody_elses_process_because_the_agents_files_name_it(tmp_path, path):
    place = install.Install(tmp_path, "http://console", "", 7, user="nobody")
    tmp_path.chmod(0o755)
    for folder in (tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    victim = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        named = place.state / path
        named.parent.mkdir(parents=True)
        who = processes.identity(victim.pid)
        named.write_text(json.dumps(who._asdict()) if named.name == "pid" else str(victim.pid))
        lock = named.with_name("lock") if named.name == "pid" else named
        held = locks.take_lock(lock)
        lock.chmod(0o644)
        install.stop(place)
        install.end_runners(place)
        os.close(held)
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_only_what_is_heard_after_the_start_counts_as_online():
    assert join._heard_within("online\n0.4\n", 1.0)
    assert join._heard_within("reading\n0.4\n", 1.0)
    assert not join._heard_within("online\n4.0\n", 1.0)
    assert not join._heard_within("used\n0.4\n", 1.0)
    assert not join._heard_within("online\n\n", 1.0)
