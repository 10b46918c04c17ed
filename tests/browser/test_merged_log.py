"""Logs of several replicas in one view by time, and a log behind a link."""

import os
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

SHOTS = os.environ.get("SHOTS", "")


@pytest.fixture(scope="module")
def made(console):
    yield console.merged()
    console.merged_gone()


def shot(page, name):
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def names(page):
    return page.locator(".log-line .many-name").all_text_contents()


def test_lines_of_all_replicas_stand_by_time_with_their_names_and_links(console, pages, made):
    page = pages.open("/deployments/many-logs/logs")
    expect(page.locator(".log-line").last).to_contain_text("replica 3 step 399")
    assert names(page)[-3:] == ["#1", "#2", "#3"]
    link = page.locator(".log-line a").last
    assert link.get_attribute("href") == f"/deployments/many-logs/replicas/3/log?piece={made['pieces'][2]}#L400"
    sources = page.locator(".many-source")
    expect(sources.nth(1)).to_contain_text("its clock is 4.2 s fast, corrected")
    expect(sources.nth(2)).to_contain_text("0.6 s slow")
    colours = page.locator(".many-name").evaluate_all("all => [...new Set(all.map((one) => getComputedStyle(one).color))]")
    assert len(colours) == 3
    # further up, without a line twice or missing
    for _ in range(6):
        page.locator(".log-lines").evaluate("pane => { pane.scrollTop = 400; pane.scrollTop = 0; }")
        page.wait_for_load_state("networkidle")
    expect(page.locator(".log-line").first).to_contain_text("replica 1 step 0")
    expect(page.locator("[data-log=status]")).to_contain_text("1,200 of 1,200 lines")
    # the end moves, and a line that comes late stands where it belongs
    page.click("[data-log=follow]")
    console.merged_more(piece=made["pieces"][0], texts=["INFO one more"], at=400 * 30 + 5000)
    expect(page.locator(".log-line").last).to_contain_text("one more")
    console.merged_more(piece=made["pieces"][1], texts=["INFO was late"], at=400 * 30 + 4000 + 4200)
    expect(page.locator(".log-line", has_text="was late")).to_have_count(1)
    assert page.locator(".log-line").last.inner_text().endswith("one more")
    # the next error, and a log that is switched off
    page.keyboard.press("e")
    expect(page.locator(".log-line.chosen")).to_contain_text("replica 2 broke")
    sources.nth(1).click()
    expect(page.locator(".log-line", has_text="replica 2")).to_have_count(0)
    page.click("[data-log=none]")
    expect(page.locator("[data-log=status]")).to_contain_text("Every log is switched off.")
    page.click("[data-log=all]")
    expect(page.locator(".log-line", has_text="replica 2").first).to_be_attached()
    assert not pages.complaints


@pytest.mark.parametrize("width, theme", [(1440, "light"), (360, "dark")])
def test_it_reads_at_every_width(pages, made, width, theme):
    page = pages.open("/deployments/many-logs/logs", width=width, theme=theme, language="zh-hans")
    expect(page.locator(".log-line").last).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator(".many-source").nth(2)).to_be_visible()
    assert problems(page) == []
    shot(page, f"merged_{width}_{theme}")


def test_a_link_shows_one_log_to_somebody_without_an_account(console, pages, made):
    page = pages.open("/deployments/many-logs/replicas/1/log")
    page.click("#shares summary")
    shot(page, "shares")
    page.click("#shares button[type=submit]")
    address = page.inner_text("#share-url")
    shot(page, "share_made")
    other = pages.open(address, user=None, width=360)
    expect(other.locator(".log-line").last).to_be_visible()
    sockets = []
    other.on("websocket", lambda one: sockets.append(one.url))
    console.merged_more(piece=made["pieces"][0], texts=["INFO by the link"], at=900_000)
    expect(other.locator(".log-line").last).to_contain_text("by the link")
    assert other.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems(other) == []
    shot(other, "shared_360")
    page.click("text=Back to the log")
    page.click("#shares summary")
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#shares button.danger")
    expect(other.locator("#shared-note")).to_contain_text("works no longer")
    assert sockets == []
    pages.complaints[:] = [one for one in pages.complaints if not re.search("410", one)]
