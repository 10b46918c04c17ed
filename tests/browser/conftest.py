"""A console of its own for the browser: real Valkey, web and ingest as processes, and a real Chromium.

The fixtures live as long as this folder's tests: Playwright keeps an event loop running, in which the ORM of the other
tests would refuse to work.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.conftest import ROOT, Valkey, free_port
from tests.waiting import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
PASSWORD = "a-long-password"


def pytest_collection_modifyitems(items):
    for item in items:
        if "/browser/" in str(item.path):
            item.add_marker(pytest.mark.browser)


class Console:
    """Web, ingest and the seeding process on one Valkey and one database file. `console.job(…)` calls seeding.job."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "valkey").mkdir()
        self.valkey = Valkey(folder / "valkey")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {
            **os.environ, "VAR_DIR": str(folder / "var"), "REDIS_URL": self.valkey.url, "PYTHONPATH": str(ROOT),
            "DATABASE_URL": "", "LANGUAGE": "en", "LOG_LEVEL": "WARNING", "LOG_SHARE": "1",
        }  # fmt: skip
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=self.env, check=True)
        self.parts, self.sessions = {}, {}
        self.start("web")
        self.start("ingest")
        seeding = [sys.executable, "-m", "tests.browser.seeding"]
        self.seeding = subprocess.Popen(
            seeding, cwd=ROOT, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.wait()

    def command(self, part):
        if part == "ingest":
            return [sys.executable, "manage.py", "ingest"]
        uvicorn = [sys.executable, "-m", "uvicorn", "console.asgi:application", "--ws", "websockets-sansio"]
        return [*uvicorn, "--host", "127.0.0.1", "--port", str(self.port), "--log-level", "warning"]

    def start(self, part):
        log = (self.folder / f"{part}.log").open("ab")
        self.parts[part] = subprocess.Popen(
            self.command(part), cwd=ROOT, env=self.env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        log.close()

    def stop(self, part):
        process = self.parts.pop(part)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        if process.poll() is None:
            process.kill()
            process.wait()

    def wait(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(f"{self.url}/healthz", timeout=1).status == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "web.log").read_text()[-2000:])

    def __getattr__(self, name):
        def call(**args):
            self.seeding.stdin.write(json.dumps({"call": name, "args": args}) + "\n")
            self.seeding.stdin.flush()
            answer = json.loads(self.seeding.stdout.readline())
            if "error" in answer:
                raise RuntimeError(answer["error"])
            return answer["answer"]

        return call

    def until(self, check, seconds=20):
        """Playwright's own wait_for_function needs eval, which the pages' policy forbids."""
        return until(check, seconds)

    def close(self):
        try:
            for part in list(self.parts):
                self.stop(part)
            self.seeding.kill()
            self.seeding.wait()
        finally:
            self.valkey.kill()


@pytest.fixture(scope="package")
def console(tmp_path_factory):
    running = Console(tmp_path_factory.mktemp("console"))
    for name, role in (("olga", "operator"), ("victor", "viewer"), ("ada", "administrator")):
        running.user(name=name, role=role)
    running.server(name="kp-01", rack="A1", family="910B3")
    running.server(name="kp-sim", rack="S1", family="910B3", simulated=True)
    yield running
    running.close()


@pytest.fixture(scope="package")
def chromium():
    from playwright.sync_api import expect, sync_playwright

    if CHROMIUM is None:
        pytest.fail("Chromium is not installed. Install it (apt-get install chromium), then run the tests again.")
    expect.set_options(timeout=15_000)  # a crowded machine is no defect; how fast it is, the benchmarks tell
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Pages:
    """Opens pages as somebody; what the scripts of any page complain of fails the test."""

    def __init__(self, console, browser):
        self.console, self.browser, self.contexts, self.complaints = console, browser, [], []

    def open(self, path="/", *, user="olga", language="en", theme="light", width=1440, height=900):
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, base_url=self.console.url, timezone_id="Asia/Shanghai",
            color_scheme=theme, has_touch=width < 700, locale="en" if language == "en" else "zh-CN",
        )  # fmt: skip
        self.contexts.append(context)
        context.add_cookies(
            [
                {"name": "django_language", "value": language, "url": self.console.url},
                {"name": "theme", "value": theme, "url": self.console.url},
            ]
        )
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        if user:
            context.add_cookies(self.session(user))
        page.goto(path)
        return page

    def session(self, user):
        """The cookies of a signed-in user; signing in once is enough for all pages."""
        if user not in self.console.sessions:
            context = self.browser.new_context(base_url=self.console.url)
            sign_in(context.new_page(), user)
            self.console.sessions[user] = [c for c in context.cookies() if c["name"] in ("sessionid", "csrftoken")]
            context.close()
        return self.console.sessions[user]

    def close(self):
        for context in self.contexts:
            context.close()
        self.contexts = []


def sign_in(page, user, password=PASSWORD):
    page.goto("/login/")
    page.fill("[name=username]", user)
    page.fill("[name=password]", password)
    page.click(".sign-in button[type=submit]")
    page.wait_for_load_state()


@pytest.fixture
def pages(console, chromium):
    opened = Pages(console, chromium)
    yield opened
    opened.close()
    assert opened.complaints == []


@pytest.fixture
def quiet_pages(console, chromium):
    """Pages whose scripts may complain, because the test takes the console away."""
    opened = Pages(console, chromium)
    yield opened
    opened.close()


def problems(page):
    """What axe finds wrong with a page, as short sentences."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"][:3]]
