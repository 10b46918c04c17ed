"""The page of one server in a real browser."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.waiting import until

NPUS = [{"aicore_pct": 40, "hbm_used_mb": 40000}, {}]
PROCESS = {
    "npu": 0,
    "chip": 0,
    "pid": 4711,
    "name": "train",
    "memory_mb": 36000,
    "user": "wang",
    "command": "<b>train</b>",
}


@pytest.fixture(autouse=True)
def reading(console):
    console.sample(
        name="kp-01", npus=NPUS, processes=[PROCESS], seq=int(time.time()), host={"cpu_pct": 12.0, "cpus": 192}
    )


def opened(console, pages, name="kp-01", **options):
    page = pages.open("/servers/", **options)
    page.goto(f"/servers/{name}/")
    return page


def sent_until(console, locator, text, **sample):
    """Sends a reading twice a second, as a server does, until the page shows it."""
    deadline = time.monotonic() + 6
    while text not in locator.inner_text():
        assert time.monotonic() < deadline, f"{text!r} did not come, but {locator.inner_text()!r}"
        console.sample(name="kp-01", seq=int(time.time() * 10), **sample)
        time.sleep(0.5)


def test_tiles_follow_each_reading(console, pages):
    page = opened(console, pages)
    tile = page.locator("#npu-0")
    sent_until(console, tile.locator("[data-field=aicore]"), "40", npus=NPUS, processes=[PROCESS])
    alarm = [{**NPUS[0], "aicore_pct": 77, "health": "Alarm"}, {}]
    sent_until(console, tile.locator("[data-field=aicore]"), "77", npus=alarm, host={"cpu_pct": 55.0})
    expect(tile.locator("[data-field=health]")).to_have_text("Alarm")
    expect(tile).to_have_class(re.compile("critical"))
    expect(page.locator("#processes tbody")).to_have_text("no process")
    expect(page.locator("[data-key=cpu_pct] [data-field=value]")).to_have_text("55")


def test_a_process_is_listed_with_its_owner_and_as_text(console, pages):
    page = opened(console, pages)
    line = page.locator("#processes tbody tr").first
    sent_until(console, line, "4711", npus=NPUS, processes=[PROCESS])
    expect(line).to_contain_text("<b>train</b>")
    expect(line).to_contain_text("foreign process")


def test_a_reading_that_nobody_understands_is_shown_and_goes_again(console, pages):
    page = opened(console, pages)
    expect(page.locator(".npu-tile")).to_have_count(2)
    what = ["驱动没有应答", "The driver does not answer."]
    error = {"code": -8005, "meaning": "dcmi-init", "text": "dcmi <i>gone</i>", "what": what, "do": None}
    sent_until(console, page.locator("#server-body"), "The driver does not answer.", error=error)
    expect(page.locator(".raw")).to_have_text("dcmi <i>gone</i>")
    expect(page.locator("#npu-0 [data-field=holder]")).to_have_text("unreadable")
    expect(page.locator("#npu-0 [data-field=aicore]")).to_have_text("—")
    sent_until(console, page.locator("#npu-0 [data-field=aicore]"), "40", npus=NPUS)
    expect(page.locator(".unreadable")).to_have_count(0)


def test_an_old_reading_is_greyed_and_says_since_when(console, pages):
    page = opened(console, pages)
    expect(page.locator("#last-contact")).to_have_text(re.compile(r"^\d s ago$"))
    expect(page.locator("#server-body.late")).to_have_count(1, timeout=20_000)
    expect(page.locator("#last-contact")).to_have_text(re.compile(r"^[6-9] s ago$"))


def test_a_check_is_one_press_away_for_an_operator(console, pages):
    page = opened(console, pages)
    console.heard(name="kp-01")
    page.get_by_role("button", name="Check this server").click()
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    job = int(page.url.rstrip("/").rsplit("/", 1)[1])
    assert console.rows(job=job)["state"] == "queued"
    page.goto("/servers/kp-01/")
    expect(page.locator("#server-jobs")).to_contain_text(f"#{job}")


def test_a_simulated_server_says_so(console, pages):
    page = opened(console, pages, "kp-sim")
    expect(page.locator(".banner")).to_contain_text("This server is simulated")
    expect(page.locator(".page-head .simulated")).to_be_visible()


@pytest.mark.parametrize(("theme", "width"), [("dark", 1440), ("light", 360)])
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, theme, width):
    page = opened(console, pages, theme=theme, width=width, language="zh-hans" if width == 360 else "en")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert problems(page) == []


def test_a_cordon_and_a_drain_show_by_themselves(console, pages):
    npus = [{"aicore_pct": 1, "bus_id": "0000:C1:00.0"}, {"bus_id": "0000:C2:00.0"}]
    console.sample(name="kp-01", npus=npus, seq=int(time.time() * 10))
    watched = opened(console, pages, user="victor")
    sent_until(console, watched.locator("#npu-0 .bus"), "0000:C1:00.0", npus=npus)
    expect(watched.locator("#npu-0 .cordon")).to_have_count(0)
    until(lambda: "0000:C1:00.0" in console.bus_ids(name="kp-01"))
    page = opened(console, pages)
    page.get_by_role("link", name="Cordon… NPU 0").click()
    page.fill("#reason", "ECC errors")
    page.get_by_role("button", name="Cordon 0000:C1:00.0").click()
    expect(page.locator("#npu-0 .cordon")).to_contain_text("ECC errors")
    sent_until(console, watched.locator("#npu-0"), "ECC errors", npus=npus)
    page.goto("/servers/kp-01/drain")
    page.fill("#reason", "new fans")
    page.get_by_role("button", name="Drain kp-01").click()
    sent_until(console, watched.locator(".banners"), "new fans", npus=npus)
    assert problems(page) == []
    page.get_by_role("button", name="End the drain").click()
    page.get_by_role("button", name="Uncordon").click()
    expect(page.locator(".banners")).not_to_contain_text("new fans")
