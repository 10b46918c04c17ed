"""The page of queues, the keys of servers, and the banner of doubt, in a real Chromium."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

LOOKS = [("light", 1440, "en"), ("dark", 1440, "zh-hans"), ("light", 360, "zh-hans"), ("dark", 360, "en")]


@pytest.fixture
def busy(console):
    jobs = [console.job(server="kp-01", locks=["stack"]), console.job(server="kp-01", locks=["stack"], waiting=True)]
    console.cut_off(server="kp-01")
    console.server(name="kp-09", heard=False)
    yield jobs
    console.cut_off(server="kp-01", on=False)


def look_at(page, name, theme, width, language):
    """A picture where SHOTS names a folder."""
    if os.environ.get("SHOTS"):
        page.wait_for_timeout(500)
        folder = Path(os.environ["SHOTS"])
        page.screenshot(path=folder / f"{name}-{language[:2]}-{theme}-{width}.png", full_page=True)


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
@pytest.mark.parametrize("name", ["queue", "keys", "server", "doubt"])
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, busy, name, theme, width, language):
    path = {"queue": "/queue/", "keys": "/servers/keys/", "server": "/servers/kp-01/", "doubt": "/jobs/"}[name]
    if name == "doubt":
        console.doubted(silent=6)
    page = pages.open(path, user="ada", theme=theme, width=width, language=language, height=900 if width > 700 else 740)
    if name == "doubt":
        expect(page.locator("#doubt .banner")).to_be_visible()
    look_at(page, name, theme, width, language)
    found = problems(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    console.doubted(silent=0)
    assert found == []
    assert wide <= width


def test_the_page_of_queues_follows_what_happens(console, pages):
    page = pages.open("/queue/")
    made = console.job(server="kp-sim", by="olga")
    line = page.locator("tr", has=page.locator("a", has_text="kp-sim"))
    expect(line.get_by_role("link", name=f"#{made['job']}")).to_be_visible()


def test_doubt_comes_and_goes_on_an_open_page(console, pages):
    page = pages.open("/jobs/")
    console.doubted(silent=6)
    banner = page.locator("#doubt .banner")
    expect(banner).to_contain_text("6 of 10 servers fell silent at once.")
    expect(banner.get_by_role("button")).to_have_count(0)  # an operator does not end it
    console.doubted(silent=0)
    expect(banner).to_have_count(0)
