"""Asking for an evaluation and its result, in a real Chromium."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at


@pytest.fixture
def seen(console):
    console.forget()
    console.heard(name="kp-01")
    found = {name: console.evaluated(child=name, passed=name == "q-w8a8") for name in ("q-w8a8", "q-bad")}
    yield found


def path_of(name, seen):
    if name == "evaluate":
        return f"/models/evaluate?artifact={seen['q-w8a8']['artifact']}"
    return f"/jobs/{seen['q-w8a8' if name == 'evaluation' else 'q-bad']['job']}/evaluation"


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
@pytest.mark.parametrize("name", ["evaluate", "evaluation", "evaluation-bad"])
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, seen, name, theme, width, language):
    page = pages.open(path_of(name, seen), theme=theme, width=width, language=language)
    look_at(page, name, theme, width, language)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_it_would_do_follows_the_form_and_the_job_is_queued(console, pages, seen):
    page = pages.open(path_of("evaluate", seen))
    aside = page.locator("#consequence")
    expect(aside).to_contain_text("Engine “reference”")
    page.locator("#p-engine").select_option("vllm")
    expect(aside).to_contain_text("Engine vLLM of the stack in use")
    page.locator("#p-pasted").fill('fine\n{"prompt": 3}')
    expect(aside).to_contain_text("Line 2 of the prompts")
    page.locator("#p-pasted").fill("hello")
    expect(aside).not_to_contain_text("Line 2 of the prompts")
    page.get_by_role("button", name="Queue the evaluation").click()
    expect(page).to_have_url(re.compile(r"/jobs/\d+/$"))


def test_answers_are_filtered_and_paged(console, pages, seen):
    page = pages.open(path_of("evaluation", seen))
    expect(page.locator(".pair")).to_have_count(20)
    page.get_by_role("link", name="More").click()
    expect(page.locator(".pair b").first).to_have_text("zh-21")
    page.locator("#lang").select_option("en")
    page.locator("[name=differs]").check()
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".pair mark").first).to_be_visible()
    assert all(name.startswith("en-") for name in page.locator(".pair b").all_text_contents())
