"""What joining says on the server where something is in the way; no console is needed for it."""

import dataclasses
import email.utils
import json
import os
import time

import pytest

from console import streams
from deployments.agent import config, install, join
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


def test_only_what_is_heard_after_the_start_counts_as_online():
    assert join._heard_within("online\n0.4\n", 1.0)
    assert join._heard_within("reading\n0.4\n", 1.0)
    assert not join._heard_within("online\n4.0\n", 1.0)
    assert not join._heard_within("used\n0.4\n", 1.0)
    assert not join._heard_within("online\n\n", 1.0)
