"""Campaigns in a real browser: asked for by one, approved by another, and the board that follows by itself."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.deployments.campaign_bench import STACK, THERE, cpu_facts

LOOKS = [(1440, "dark", "zh-hans"), (360, "light", "en")]


@pytest.fixture(autouse=True)
def servers(console):
    for n in range(4):
        console.server(name=f"c-{n}", rack=f"R{n}", facts=cpu_facts(), family="", labels={"of": "campaigns"})
    console.server(name="c-odd", rack="R9", facts=cpu_facts(arch="riscv64"), family="", labels={"of": "campaigns"})
    yield
    console.forget()
    console.remove(prefix="c-")


def run(console, attempt, state="succeeded", steps=10):
    """The job of this attempt runs and ends, as its server would tell it."""
    console.send(
        attempt=attempt, records=[["v", json.dumps({"e": "started", "attempt": attempt, "pid": 1, "host": "h"})]]
    )
    title = ["写 activate 文件", "Write the activate file"]  # as the plan calls one: a card counts those
    begun = [["v", json.dumps({"e": "step", "n": n, "of": steps, "title": title, "argv": ["true"]})] for n in (1, 2, 3)]
    console.send(attempt=attempt, records=begun)
    ended = {"e": "ended", "state": state, "exit": 0, "reason": None}
    return lambda: console.send(attempt=attempt, records=[["v", json.dumps(ended)]])


def test_one_asks_another_approves_and_the_board_follows_to_the_end(pages, console):
    page = pages.open(f"/stacks/{STACK}/")
    page.click("#stack-campaign")
    page.fill("#find", "label:of=campaigns")
    page.fill("#size", "2")
    page.fill("#soak_min", "0")
    page.wait_for_selector("text=It will run on 4 servers")
    expect(page.locator("#consequence")).to_contain_text("1 is left out")
    page.wait_for_selector("h3:has-text('Ring 2')")
    page.fill("#why", "The new release mends the crash")
    page.click("text=Ask for approval")
    page.wait_for_url("**/campaigns/*/")
    expect(page.locator("#campaign-approve")).to_have_count(0)
    other = pages.open(page.url.removeprefix(console.url), user="ada")
    other.fill("#note", "Looked at all of it")
    other.click("#campaign-approve")
    other.wait_for_selector(".board")
    page.wait_for_selector(".board")  # the first page has followed by itself
    names = {f"c-{n}" for n in range(4)}
    done = set()
    for expected in (1, 2, 1):
        found = console.until(
            lambda n=expected: len(got := console.newest_attempts(count=9, servers="c-")) == n and got
        )
        endings = [run(console, attempt) for attempt in found]
        page.wait_for_selector(".server-card >> text=2 of")
        done |= set(sorted(names - done)[:expected])
        for name in names:  # on a slow machine they would be silent by now
            console.tells(name=name, facts=cpu_facts(**THERE) if name in done else cpu_facts())
        for end in endings:
            end()
    page.wait_for_selector("text=Installed on all 4 servers", timeout=40_000)
    expect(page.locator(".server-card >> text=matches the stack")).to_have_count(4)
    expect(page.locator(".server-card dd", has_text=f"— → then {STACK}")).to_have_count(4)
    assert problems(page) == []


def test_a_note_being_typed_survives_what_others_do(pages, console):
    number = console.campaign(find="label:of=campaigns")
    page = pages.open(f"/campaigns/{number}/", user="ada")
    page.fill("#note", "half a sen")
    console.campaign(find="label:of=campaigns", approved_by="ada")
    console.until(lambda: console.newest_attempts(count=1, servers="c-"))
    page.type("#note", "tence")
    page.wait_for_timeout(1500)
    expect(page.locator("#note")).to_have_value("half a sentence")


@pytest.mark.parametrize(("width", "theme", "language"), LOOKS)
@pytest.mark.parametrize(
    "path",
    ["/campaigns/", f"/campaigns/new?stack={STACK}&find=label:of", "{waits}", "{begun}", "{begun}stop", "{held}"],
)
def test_the_pages_are_sound_at_every_width(pages, console, path, width, theme, language):
    made = {"waits": console.campaign(find="label:of"), "begun": console.campaign(find="label:of", approved_by="ada")}
    made["held"] = console.held_back(find="label:of")
    where = {name: f"/campaigns/{number}/" for name, number in made.items()}
    page = pages.open(path.format(**where), width=width, theme=theme, language=language, user="ada")
    page.wait_for_selector("h1", state="attached")
    if path == "{held}":
        expect(page.locator("#held-approve")).to_be_visible()
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_fleets_filter_leads_to_the_form(pages, console):
    page = pages.open("/?find=c-1")
    expect(page.locator("[data-campaign]")).to_have_attribute("href", re.compile("names=c-1"))
    page.click("[data-campaign]")
    page.select_option("#stack", STACK)
    expect(page.get_by_text("It will run on 1 server", exact=True)).to_be_visible()


def test_empty_lists_say_what_they_are_for(pages, console):
    page = pages.open("/campaigns/")
    expect(page.get_by_role("heading", name="No campaigns yet")).to_be_visible()
    expect(page.locator(".rail [aria-current=page]")).to_have_text("Campaigns")
    assert problems(page) == []
