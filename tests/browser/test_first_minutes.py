"""What a new user does in three minutes: start, sign in, see the fleet move, check this machine, read the verdict."""

import re
import time

import pytest

from tests.browser.conftest import problems
from tests.waiting import until
from tests.whole import Whole


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    running = Whole(tmp_path_factory.mktemp("whole"), demo_servers=20)
    yield running
    running.stop()


@pytest.fixture
def page(whole, chromium):
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, base_url=whole.url, locale="en")
    context.add_cookies([{"name": "django_language", "value": "en", "url": whole.url}])
    page = context.new_page()
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    yield page
    context.close()


def cells(page):
    return page.locator("#fleet-table tbody tr:not(.group)").all_inner_texts()


def test_from_sign_in_to_verdict_within_three_minutes(whole, page):
    began = time.monotonic()
    page.goto("/")
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", whole.password)
    page.press("[name=password]", "Enter")
    page.wait_for_selector("#fleet-table tbody tr:not(.group)")
    rows = cells(page)
    assert len(rows) == 21 and sum("simulated" in row for row in rows) == 20
    until(lambda: cells(page) != rows, 10, every=0.1)
    moved = [now for now, before in zip(cells(page), rows, strict=True) if now != before]
    assert moved, "the fleet does not move"

    own = next(s["name"] for s in whole.call("/servers", whole.token())["servers"] if not s["simulated"])
    page.click(f"#fleet-table a[href*='/servers/{own}/']")
    page.get_by_role("button", name="Check this server").click()
    page.wait_for_url(re.compile(r"/jobs/\d+/"))
    until(lambda: "Succeeded" in page.inner_text("body"), 60, every=0.1)
    report = page.locator("body").inner_text()
    assert re.search(r"\d+ ok", report) and "Architecture" in report
    page.wait_for_selector(".log-line", timeout=10_000)
    assert time.monotonic() - began < 180
    assert page.complaints == []
    job = whole.call("/jobs", whole.token())["jobs"][0]
    attempt = whole.call(f"/jobs/{job['id']}", whole.token())["attempt"]
    assert attempt["complete"] and {item["verdict"] for item in attempt["report"]} <= {
        "ok",
        "warning",
        "failed",
        "unknown",
    }
    assert all(item["remedy"] for item in attempt["report"] if item["verdict"] in ("warning", "failed"))
    assert problems(page) == []


def test_a_check_on_simulated_servers_uses_simulated_tools_and_differs(whole):
    token = whole.token()
    verdicts = {}
    jobs = {name: whole.call("/jobs", token, {"kind": "check", "server": name})["id"] for name in ("kp-01", "kp-05")}
    for name, job in jobs.items():
        deadline = time.monotonic() + 90
        while (answer := whole.call(f"/jobs/{job}", token))["state"] in ("queued", "running"):
            assert time.monotonic() < deadline, answer
            time.sleep(0.5)
        assert answer["state"] == "succeeded" and answer["simulated"] is True
        verdicts[name] = [item["verdict"] for item in answer["attempt"]["report"]]
    assert "failed" in verdicts["kp-05"] and verdicts["kp-01"].count("failed") < verdicts["kp-05"].count("failed")


def test_the_end_leaves_no_process_and_the_next_start_has_everything(whole):
    token = whole.token()
    before = whole.call("/jobs", token)["jobs"]
    whole.stop()
    assert processes_of(whole) == []
    whole.start()  # how fast: see tests/benchmarks
    assert whole.call("/jobs", token)["jobs"] == before


def processes_of(whole):
    """Command lines that name this console's folder."""
    import pathlib

    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(whole.folder / "var") in words:
            found.append(words)
    return found
