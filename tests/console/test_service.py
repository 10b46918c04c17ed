"""`make service`: what the unit says, what is kept, and what is refused in words. systemctl itself is a stand-in."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from console import service
from console.environment import BadSetting
from console.management.commands.service import check_nobody_else_runs
from deployments import locks

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SET = {"PORT": "443", "BIND": "0.0.0.0", "DATABASE_URL": 'postgres://u:a"b\\c$d%e@h/x'}


def made(tmp_path, **environment):
    base = tmp_path / "base"
    base.mkdir(exist_ok=True)
    (base / "manage.py").write_text("")
    return service.Service(base, Path("/usr/bin/python3"), tmp_path / "var", "nobody", environment)


def test_the_unit_keeps_job_runners_and_comes_back(tmp_path):
    text = service.unit(made(tmp_path))
    for line in (
        "KillMode=process", "Restart=always", "User=nobody", "WantedBy=multi-user.target", "NoNewPrivileges=yes",
        f"ExecStart=/usr/bin/python3 {tmp_path}/base/manage.py up", f"WorkingDirectory={tmp_path}/base",
    ):  # fmt: skip
        assert line in text.splitlines()
    assert "AmbientCapabilities" not in text
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE" in service.unit(made(tmp_path, PORT="443"))


def test_systemd_understands_the_unit_whatever_the_folders_are_called(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    folder = tmp_path / "a b %h $x"
    folder.mkdir()
    wanted = replace(made(folder, **SET), account="daemon")
    wanted.var.mkdir()
    path = tmp_path / "ascend-console.service"
    path.write_text(service.unit(wanted))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if "ascend-console" in line]
    assert said == [] and done.returncode == 0


def test_settings_survive_the_file_and_the_next_install(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "ENVIRONMENT", tmp_path / "env")
    assert service.kept() == {}
    chosen = service.given({}, {**SET, "HOME": "/root", "LANGUAGE": "en_GB:en"})
    assert chosen == SET
    (tmp_path / "env").write_text(service.environment_file(made(tmp_path, **chosen)))
    again = service.kept()
    assert again == {**SET, "VAR_DIR": str(tmp_path / "var")}
    assert service.given(again, {"PORT": "8443", "BIND": ""})["PORT"] == "8443"
    assert "BIND" not in service.given(again, {"BIND": ""})
    with pytest.raises(BadSetting, match="DATABASE_URL_FILE"):
        service.environment_file(made(tmp_path, DATABASE_URL="a\nb"))


def test_each_setting_of_the_readme_is_known(tmp_path):
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    rows = [line.split("|")[1] for line in readme.splitlines() if line.startswith("| `")]
    listed = {word.strip(" `") for row in rows for word in row.split(",")}
    assert listed - {"VAR_DIR"} <= set(service.NAMES)


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A machine with systemd whose systemctl only notes what it is told; (its notes, the service)."""
    (tmp_path / "systemd").mkdir()
    (tmp_path / "bin").mkdir()
    notes = tmp_path / "notes"
    program = tmp_path / "bin" / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$*" >>{notes}\n')
    program.chmod(0o755)
    for name, path in (("SYSTEMD", "systemd"), ("UNIT", "ascend-console.service"), ("ENVIRONMENT", "env")):
        monkeypatch.setattr(service, name, tmp_path / path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(service, "check_account", lambda wanted: None)  # has tests of its own
    return notes, made(tmp_path, **SET)


@as_root
def test_installing_hands_the_folder_over_and_starts_the_unit(systemd, tmp_path):
    notes, wanted = systemd
    (wanted.var / "log").mkdir(parents=True)
    (wanted.var / "up.lock").write_text("")
    (wanted.var / "link").symlink_to("/etc/passwd")
    service.install(wanted)
    assert notes.read_text().splitlines() == [
        "daemon-reload", "enable --quiet ascend-console.service", "restart ascend-console.service",
    ]  # fmt: skip
    assert {path.lstat().st_uid for path in (wanted.var, *wanted.var.iterdir())} == {65534}
    assert Path("/etc/passwd").stat().st_uid == 0
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o600
    assert service.remove()
    assert "disable --now --quiet ascend-console.service" in notes.read_text()
    assert not (tmp_path / "env").exists() and not service.UNIT.exists() and (wanted.var / "log").exists()
    assert not service.remove()


@as_root
def test_what_would_harm_is_refused_before_anything_is_changed(systemd, tmp_path):
    notes, wanted = systemd
    (wanted.var / "homes").mkdir(parents=True)
    (wanted.var / "secret_key").write_text("x")
    with pytest.raises(BadSetting, match="holds other files"):
        service.install(wanted)
    assert (wanted.var / "homes").stat().st_uid == 0
    with pytest.raises(BadSetting, match="does not run as root"):
        service.make_account("root")
    service.SYSTEMD.rmdir()
    with pytest.raises(BadSetting, match="no systemd here"):
        service.install(wanted)
    assert not notes.exists() and not service.UNIT.exists()


@as_root
def test_an_account_that_cannot_reach_the_console_is_a_sentence(tmp_path):
    tmp_path.chmod(0o700)
    with pytest.raises(BadSetting, match="Put it where every account may read it"):
        service.check_account(made(tmp_path))


@as_root
def test_a_key_that_the_account_cannot_read_is_a_sentence(tmp_path, monkeypatch):
    key = tmp_path / "key.pem"
    key.write_text("x")
    key.chmod(0o600)
    wanted = service.Service(Path("/"), Path("/bin/true"), tmp_path / "var", "nobody", {"TLS_KEY": str(key)})
    with pytest.raises(BadSetting, match=r"TLS_KEY=.* cannot read it"):
        service.check_account(wanted)


def test_a_console_that_runs_otherwise_is_not_doubled(tmp_path):
    lock = tmp_path / "up.lock"
    check_nobody_else_runs(lock)
    held = locks.take_lock(lock)
    os.write(held, b'{"pid": %d}' % os.getpid())
    with pytest.raises(BadSetting, match="runs already"):
        check_nobody_else_runs(lock)
    os.close(held)


def test_the_dry_run_shows_the_unit_and_no_secret(capsys, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "")
    monkeypatch.setenv("SECRET_KEY", "geheim")
    call_command("service", "--print")
    shown = capsys.readouterr().out
    assert "KillMode=process" in shown and "SECRET_KEY" in shown
    assert "geheim" not in shown


def test_down_does_not_fight_systemd(monkeypatch, settings, tmp_path):
    settings.VAR_DIR = tmp_path
    held = locks.take_lock(tmp_path / "up.lock")
    os.write(held, b'{"pid": %d}' % os.getpid())
    monkeypatch.setattr(service, "runs", lambda pid: True)
    with pytest.raises(CommandError, match="systemctl stop ascend-console"):
        call_command("down")
    os.close(held)
