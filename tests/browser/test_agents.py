"""The pages of the agents' versions and addresses in a real browser."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

OLD = {"agent_version": "0.0.9", "agent_code": "a3f0c1d2e4b59687", "agent_protocol": 2}


@pytest.fixture(autouse=True)
def servers(console):
    for n in range(3):
        console.server(name=f"v-{n}", rack=f"R{n}", **OLD)
    yield
    console.forget()
    console.remove(prefix="v-")


def test_an_upgrade_is_chosen_looked_at_and_started(pages):
    page = pages.open("/servers/agents/")
    page.check('input[value="v-0"]')
    page.check('input[value="v-2"]')
    page.click("text=Upgrade the selected…")
    page.wait_for_selector("text=It will hit 2 servers")
    page.fill("#canary", "0")
    page.wait_for_selector("text=Wave 1")
    page.wait_for_selector("text=Canary 1 server", state="detached")
    page.click("text=Upgrade 2 agents")
    page.wait_for_url("**/batches/*/")
    expect(page.get_by_text("Upgrade the agent").first).to_be_visible()


def test_the_names_of_an_order_are_followed_as_they_are_typed(pages):
    page = pages.open("/servers/agents/addresses", user="ada")
    page.fill("#names", "v-1 nobody")
    page.wait_for_selector("text=No server is called: nobody")
    page.fill("#names", "v-1")
    page.wait_for_selector("text=It will hit 1 server")
    page.fill("#redis", "new:6380")
    page.wait_for_selector("text=is no address of Redis")
    page.fill("#redis", "rediss://new.example:6380/0")
    page.wait_for_selector("text=is no address of Redis", state="detached")
    page.click("text=Send the order")
    page.wait_for_selector("text=The order went to 1 agent.")
    expect(page.get_by_text("no answer yet")).to_be_visible()


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (360, "dark")])
@pytest.mark.parametrize("path", ["/servers/agents/", "/servers/agents/upgrade?all=1", "/servers/agents/addresses"])
def test_nothing_is_wrong_with_the_pages(pages, path, width, theme):
    page = pages.open(path, user="ada", width=width, theme=theme)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
