"""The pages of batches in a real browser: what will be hit, the live matrix, the switches of a server."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

WIDTHS = [(1440, "light"), (360, "dark")]


@pytest.fixture(autouse=True)
def servers(console):
    for n in range(3):
        console.server(name=f"b-{n}", rack=f"R{n}", family="910B4")
    yield
    console.forget()
    console.remove(prefix="b-")


def test_a_batch_from_the_form_to_its_end(pages, console):
    page = pages.open("/batches/new")
    page.fill("#find", "910b4")
    page.wait_for_selector("text=It will hit 3 servers")
    page.fill("#wave", "2")
    page.wait_for_selector("text=Wave 1")
    page.click("text=Start batch")
    page.wait_for_url("**/batches/*/")
    page.wait_for_selector("text=The canary goes first")
    for expected in (1, 2):
        found = console.newest_attempts(count=expected)
        for attempt in found:
            console.send(
                attempt=attempt,
                records=[
                    ["v", json.dumps({"e": "started", "attempt": attempt, "pid": 1, "host": "h"})],
                    ["v", json.dumps({"e": "step", "n": 1, "of": 6, "title": ["系统", "System"], "argv": ["true"]})],
                    ["v", json.dumps({"e": "step_end", "n": 1, "state": "succeeded", "exit": 0, "took_s": 0.1})],
                    ["v", json.dumps({"e": "ended", "state": "succeeded", "exit": 0, "reason": None})],
                ],
            )
        if expected == 1:
            page.wait_for_selector("text=Wave 1 of 1")
            console.until(lambda: len(console.newest_attempts(count=2)) == 2)
    page.wait_for_selector("text=Succeeded on all 3 servers")
    assert page.locator("td.cell.ok").count() == 3


def test_what_is_seen_is_what_is_hit(quiet_pages, console):
    page = quiet_pages.open("/batches/new?find=910b4")
    page.wait_for_selector("text=It will hit 3 servers")
    console.server(name="b-9", rack="R9", family="910B4")
    page.click("text=Start batch")
    page.wait_for_selector("text=other servers than those that were shown")
    assert page.locator(".member", has_text="b-9").count() == 1


def test_the_fleets_filter_leads_to_the_form(pages, console):
    page = pages.open("/?find=b-1")
    expect(page.locator("[data-batch]")).to_have_attribute("href", re.compile("names=b-1"))
    page.click("[data-batch]")
    expect(page.get_by_text("It will hit 1 server")).to_be_visible()


def test_a_queue_is_paused_with_a_reason_and_resumed(pages, console):
    page = pages.open("/servers/b-0/")
    page.click("details.menu:has-text('Pause queue') > summary")
    page.click("text=Pause queue")
    page.fill("#reason", "Fan 3")
    page.click("button.primary")
    page.wait_for_selector("text=The queue is paused.")
    assert problems(page) == []
    page.click("text=Resume the queue")
    page.wait_for_selector("text=Pause queue", state="attached")


@pytest.mark.parametrize(("width", "theme"), WIDTHS)
@pytest.mark.parametrize("path", ["/batches/", "/batches/new", "{batch}", "{batch}stop", "/servers/b-0/queue/pause"])
def test_the_pages_are_sound_at_every_width(pages, console, path, width, theme):
    batch = f"/batches/{console.batch(find='910b4')}/"
    page = pages.open(path.format(batch=batch), width=width, theme=theme)
    page.wait_for_selector("h1", state="attached")
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
