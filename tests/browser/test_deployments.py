"""The pages of deployments in a real Chromium: the list, one deployment, dialogs, the log of a replica."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at

PAGES = {
    "deployment-list": "/deployments/", "deployment-detail": "/deployments/qwen3-32b/",
    "deployment-failed": "/deployments/glm-4-9b/", "deployment-ask": "/deployments/qwen3-32b/stop",
    "deployment-edit": "/deployments/qwen3-32b/edit", "deployment-schedule": "/deployments/qwen3-32b/schedule",
    "deployment-change": "/deployments/qwen3-32b/change", "deployment-idle": "/deployments/idle/",
    "replica-log": "/deployments/qwen3-32b/replicas/5/log",
}  # fmt: skip


STICKS_OUT = "[...document.querySelectorAll('.card')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"


@pytest.fixture
def made(console):
    console.forget()
    yield console.deployments()
    console.no_deployments()
    console.forget()


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS[1:3])
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, made, theme, width, language):
    for name, path in PAGES.items():
        page = pages.open(path, theme=theme, width=width, language=language, height=900 if width > 700 else 740)
        look_at(page, name, theme, width, language)
        assert problems(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(STICKS_OUT) == 0, name
        pages.close()


def test_what_is_rare_stands_in_a_menu_that_the_keyboard_opens(console, pages, made):
    page = pages.open("/deployments/idle/")
    expect(page.get_by_role("link", name="Delete", exact=True)).to_be_hidden()
    page.locator("#more-actions summary").press("Enter")
    expect(page.get_by_role("link", name="Delete", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Delete", exact=True)).to_be_hidden()


def test_a_deployment_follows_its_replicas_and_keeps_what_was_opened(console, pages, made):
    page = pages.open("/deployments/qwen3-32b/")
    fifth = page.locator(".replicas tbody", has=page.get_by_role("link", name="#5"))
    expect(fifth).to_contain_text("loading weights 12/37")
    page.locator("#replica-1 > summary").click()
    page.wait_for_selector("#live-chip:has-text('live')")
    console.deployment_moved(name="qwen3-32b", replica=5, generation_tokens_s=777)
    expect(fifth).to_contain_text("Ready")
    expect(fifth).to_contain_text("777")
    expect(page.locator("#replica-1")).to_have_attribute("open", "")
    console.deployment_moved(name="qwen3-32b", replica=5, generation_tokens_s=900)
    expect(page.locator("[data-plot='generation_tokens_s'] path").first).to_be_attached()
