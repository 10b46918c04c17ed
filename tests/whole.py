"""The whole console as `make up` starts it, in a folder of its own, for tests and benchmarks."""

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.conftest import ROOT, free_port

READY_WITHIN_S = 120  # on a crowded machine; alone it takes 3 s
FIRST_LINE = re.compile(r"admin\s+.*?:\s*(\S+)\s+\(")


class Whole:
    """`manage.py up` with a random port; `password` is what it printed for the first administrator."""

    def __init__(
        self,
        folder: Path,
        *,
        demo_servers: int,
        bind: str = "127.0.0.1",
        root: Path = ROOT,
        tls: bool = False,
        check_names: bool = True,
        **env: str,
    ) -> None:
        self.check_names = check_names  # False: as who takes whatever certificate there is
        self.folder, self.root, self.port = folder, root, free_port()
        self.url = f"{'https' if tls else 'http'}://{bind}:{self.port}"
        self.ca = Path(env.get("TLS_CA", folder / "var" / "tls" / "ca.crt"))
        self.env = {
            **os.environ, "VAR_DIR": str(folder / "var"), "PORT": str(self.port), "BIND": bind,
            "DEMO_SERVERS": str(demo_servers), "REDIS_URL": "",
            "REDIS_PORT": str(free_port()),  # the first free one may be taken by a console that starts now, too
            "DATABASE_URL": "", "LANGUAGE": "en", **env,
        }  # fmt: skip
        self.printed = folder / "up.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        self.password = FIRST_LINE.search(self.printed.read_text()).group(1)

    def start(self) -> float:
        """Start, and return the seconds until /readyz answers 200."""
        began = time.monotonic()
        with self.printed.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=self.root,
                env=self.env,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
        while time.monotonic() - began < READY_WITHIN_S:
            with contextlib.suppress(OSError, urllib.error.HTTPError):
                if self.open(f"{self.url}/readyz", timeout=5).status == 200:
                    return time.monotonic() - began
            assert self.process.poll() is None, self.printed.read_text()
            time.sleep(0.05)
        raise AssertionError(f"not ready within {READY_WITHIN_S} s: {self.stop()}")

    def trust(self) -> ssl.SSLContext | None:
        """What a browser trusts that has this console's authority."""
        if not self.url.startswith("https"):
            return None
        return ssl.create_default_context(cafile=self.ca) if self.check_names else ssl._create_unverified_context()

    def open(self, request: str | urllib.request.Request, *, timeout: float):
        return urllib.request.urlopen(request, timeout=timeout, context=self.trust())

    def command(self, *words: str) -> str:
        argv = [sys.executable, "manage.py", *words]
        return subprocess.run(argv, cwd=self.root, env=self.env, capture_output=True, text=True, check=True).stdout

    def token(self, role: str = "administrator") -> str:
        return re.search(r"ac_\S+", self.command("token", "create", "admin", "--role", role)).group(0)

    def call(self, path: str, token: str, body: object = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept-Language": "en"}
        with self.open(urllib.request.Request(f"{self.url}/api/v1{path}", data, headers), timeout=10) as answer:
            return json.loads(answer.read())

    def stop(self) -> str:
        """SIGTERM; returns all that was printed."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        return self.printed.read_text()
