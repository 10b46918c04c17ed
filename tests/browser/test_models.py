"""The pages of models in a real Chromium: the list, one model with its lineage, deleting, the catalogue."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at


@pytest.fixture
def made(console):
    console.forget()
    console.heard(name="kp-01")
    yield console.models()
    console.no_models()
    console.forget()


PAGES = {
    "model-list": "/models/", "model-detail": "/models/{w8a8}/", "model-half": "/models/{w4}/",
    "model-odd": "/models/{odd}/", "model-edit": "/models/{parent}/edit",
    "model-delete": "/models/copies/{place}/delete",
    "model-catalogue": "/models/catalogue/", "model-none": "/models/?q=nothing-like-it",
}  # fmt: skip


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, made, name, theme, width, language):
    path = PAGES[name].format(**made)
    page = pages.open(path, theme=theme, width=width, language=language, height=900 if width > 700 else 740)
    look_at(page, name, theme, width, language)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_empty_list_leads_to_the_form_that_looks_for_models(console, pages):
    console.no_models()
    console.heard(name="kp-01")
    page = pages.open("/models/")
    page.locator("section.empty").get_by_role("link", name="Look for models").click()
    page.fill("#scan-server", "kp-01")
    page.fill("#scan-folder", "/srv/models")
    page.locator("#scan").get_by_role("button", name="Look for models").click()
    page.wait_for_url("**/jobs/*/")
    assert console.rows(job=console.newest_job())["params"] == {"folder": "/srv/models", "digests": False}
    console.forget()


def test_a_model_appears_when_a_job_tells_of_it(console, pages, made):
    page = pages.open("/models/")
    expect(page.get_by_role("link", name="told-just-now")).to_have_count(0)
    page.wait_for_selector("#live-chip:has-text('live')")
    console.model_told()
    expect(page.get_by_role("link", name="told-just-now")).to_be_visible()


def test_the_lineage_is_walked_by_keyboard_and_is_a_table_too(console, pages, made):
    page = pages.open(f"/models/{made['w8a8']}/", width=360, height=740)
    drawn = page.locator(".lineage a[href^='/models/']")
    expect(drawn).to_have_count(8)
    here = page.locator(".lineage .here")
    assert here.bounding_box()["x"] >= 0 and here.bounding_box()["x"] + here.bounding_box()["width"] <= 360
    drawn.first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/models/{made['parent']}/")
    page.get_by_text("The same as a table").click()
    rows = page.locator(".lineage-table tbody tr")
    expect(rows).to_have_count(11)
    expect(rows.nth(2)).to_contain_text("Qwen2.5-7B-Instruct")
    page.get_by_role("link", name="Qwen2.5-7B-Instruct-w4a8").last.click()
    page.wait_for_url(f"**/models/{made['w4']}/")
    expect(page.locator("body")).to_contain_text("The shard a is missing. Fetch the missing files")


def test_the_last_copy_goes_only_by_its_name(console, quiet_pages, made):
    page = quiet_pages.open(f"/models/{made['parent']}/")
    page.get_by_role("link", name="Delete here…").click()
    expect(page.get_by_role("heading", name="Delete “Qwen2.5-7B-Instruct” on kp-01?")).to_be_visible()
    page.fill("#confirm", "Qwen")
    page.get_by_role("button", name="Delete on kp-01").click()
    expect(page.get_by_role("alert")).to_contain_text("Type the name of the model exactly")
    page.fill("#confirm", "Qwen2.5-7B-Instruct")
    page.get_by_role("button", name="Delete on kp-01").click()
    page.wait_for_url("**/jobs/*/")
    made_job = console.rows(job=console.newest_job())
    assert made_job["params"]["path"] == "/data/models/Qwen2.5-7B-Instruct"
