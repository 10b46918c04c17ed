"""A bad value stops the start in one sentence that names the variable."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from console import environment as env

ROOT = Path(__file__).resolve().parent.parent.parent


def load_settings(tmp_path, **variables):
    """Exit code and last line of a process that reads the settings."""
    surroundings = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL", "VAR_DIR")
    }
    surroundings |= {"VAR_DIR": str(tmp_path / "var"), **variables}
    done = subprocess.run(
        [sys.executable, "-c", "import console.settings"], cwd=ROOT, env=surroundings, capture_output=True, text=True
    )
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PORT", "80a", "a whole number from 1 to 65535"),
        ("PORT", "70000", "a whole number from 1 to 65535"),
        ("DEMO_SERVERS", "-1", "a whole number from 0 to 5000"),
        ("DEBUG", "perhaps", "neither 1 nor 0"),
        ("DATABASE_URL", "mysql://u:geheim@h/x", "postgres://USER:PASSWORD@HOST:5432/NAME"),
        ("DATABASE_URL", "just words", "postgres://USER:PASSWORD@HOST:5432/NAME"),
        ("REDIS_URL", "http://h", "redis://[USER:PASSWORD@]HOST:6379/0"),
        ("REDIS_URL", "redis://u:geheim@h:port/0", "redis://[USER:PASSWORD@]HOST:6379/0"),
        ("REDIS_URL", "redis://h/5", "database 0 only"),
        ("SECRET_KEY_FILE", "/nowhere/key", "Name a file this user may read"),
        ("PACKAGE_INDEX", "https://u:geheim@mirror.example/simple", "http(s) address without a password"),
        ("PACKAGE_INDEX", "https://a.example/x https://b.example/y", "at most 1"),
        ("PACKAGE_EXTRA_INDEX", "file:///opt/wheels", "http(s) address without a password"),
        ("TIME_ZONE", "Mars/Olympus", "Asia/Shanghai"),
        ("LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING, ERROR"),
        ("VAR_DIR", "/proc/nowhere", "Set VAR_DIR to a folder of this user"),
    ],
)
def test_a_bad_value_stops_the_start_in_one_sentence(tmp_path, name, value, said):
    code, words = load_settings(tmp_path, **{name: value})
    assert code == 1
    assert said in words
    assert name.removesuffix("_FILE") in words or value in words
    assert "Traceback" not in words
    assert "geheim" not in words
    assert len(words.splitlines()) == 1


def test_good_values_are_taken(tmp_path):
    code, words = load_settings(
        tmp_path, PORT="8123", DEMO_SERVERS="0", TIME_ZONE="UTC", REDIS_URL="rediss://u:p@h:6380/0"
    )
    assert (code, words) == (0, "")


def test_a_secret_is_made_once_and_is_private(tmp_path, monkeypatch):
    monkeypatch.delenv("SECRET_KEY", raising=False)
    kept = tmp_path / "var" / "key"
    made = env.secret("SECRET_KEY", kept)
    assert len(made) > 40
    assert env.secret("SECRET_KEY", kept) == made
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_secret_may_come_from_a_file(tmp_path, monkeypatch):
    (tmp_path / "given").write_text("from a file\n")
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "given"))
    assert env.secret("SECRET_KEY", tmp_path / "kept") == "from a file"
    assert not (tmp_path / "kept").exists()


def test_an_emptied_secret_is_refused_in_words(tmp_path, monkeypatch):
    monkeypatch.delenv("SECRET_KEY", raising=False)
    (tmp_path / "key").write_text("")
    with pytest.raises(env.BadSetting, match="Remove it"):
        env.secret("SECRET_KEY", tmp_path / "key")


@pytest.mark.parametrize(
    ("given", "https", "hsts_s"),
    [
        ({}, False, 0),
        ({"BIND": "127.0.0.2"}, False, 0),
        ({"BIND": "10.0.0.5"}, True, 0),  # another program may answer plain HTTP under the same name
        ({"BIND": "10.0.0.5", "PORT": "443"}, True, 2592000),
        ({"BIND": "10.0.0.5", "ALLOW_PLAINTEXT": "1"}, False, 0),
        ({"BIND": "10.0.0.5", "ALLOW_PLAINTEXT": "1", "TLS": "1"}, True, 0),
        ({"BIND": "0.0.0.0", "TLS": "0"}, False, 0),
        ({"TLS": "1"}, True, 0),
    ],
)
def test_tls_is_the_default_for_every_address_but_loopback(tmp_path, given, https, hsts_s):
    surroundings = {name: value for name, value in os.environ.items() if name not in ("BIND", "TLS", "PORT")}
    code = "from console import settings as s; print(s.HTTPS, s.SESSION_COOKIE_SECURE, s.SECURE_HSTS_SECONDS)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=surroundings | {"VAR_DIR": str(tmp_path)} | given,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(https), str(https), str(hsts_s)]


@pytest.mark.parametrize("raw", ["0", "-0.1", "1.5", "a third", "nan"])
def test_a_share_that_is_none_stops_the_start_in_words(monkeypatch, raw):
    monkeypatch.setenv("DOUBT_SHARE", raw)
    with pytest.raises(env.BadSetting, match="DOUBT_SHARE"):
        env.share("DOUBT_SHARE", 0.3)
    monkeypatch.setenv("DOUBT_SHARE", "0.5")
    assert env.share("DOUBT_SHARE", 0.3) == 0.5
