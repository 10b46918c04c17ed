"""The pages on which a deployment is planned and changed, in a real Chromium."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at


@pytest.fixture
def artifact(console):
    console.server(name="kp-wizard", family="910B3")
    yield console.servable(server="kp-wizard")
    console.remove(prefix="kp-wizard")


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
def test_axe_finds_nothing_and_nothing_sticks_out(pages, artifact, theme, width, language):
    page = pages.open(f"/deployments/new?artifact={artifact}", theme=theme, width=width, language=language)
    expect(page.locator("#consequence")).to_contain_text("--max-model-len")
    page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    look_at(page, "wizard", theme, width, language)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1440, 360])
def test_the_start_stays_in_sight_and_the_steps_follow_what_is_read(pages, artifact, width):
    page = pages.open(f"/deployments/new?artifact={artifact}", width=width)
    now = page.locator("#wizard-steps [aria-current]")
    expect(now).to_have_text("Plans")
    for step in ("Servers", "Settings"):
        page.locator("#wizard-steps").get_by_role("link", name=step).click()
        expect(now).to_have_text(step)
        start = page.locator("#consequence .primary" if width == 1440 else "#start .primary")
        expect(start).to_be_in_viewport(ratio=1)


def test_from_the_model_to_the_start(pages, artifact):
    page = pages.open("/deployments/new")
    page.get_by_label("Model", exact=True).select_option(str(artifact))
    page.get_by_role("button", name="Plan it").click()
    beside = page.locator("#consequence")
    expect(beside).to_contain_text("--tensor-parallel-size")
    page.get_by_label("Tensor parallel", exact=False).first.fill("3")
    expect(beside).to_contain_text("cannot be divided by 3")
    page.get_by_label("Tensor parallel", exact=False).first.fill("1")
    expect(beside).not_to_contain_text("cannot be divided")
    page.get_by_label("Paste lines from your guide").fill("max_batch_size=32 swap_space=64GB")
    page.get_by_role("button", name="Fill in and look").click()
    expect(page.locator(".heard")).to_contain_text("left out")
    expect(page.locator("#p-max_num_seqs")).to_have_value("32")
    page.get_by_label("Name of the deployment").fill("kp-wizard-one")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url("**/deployments/kp-wizard-one/")
    page.goto(page.url + "change")
    page.locator("#p-max_num_seqs").fill("16")
    expect(beside).to_contain_text("Requests at once")
    page.get_by_role("button", name="Review the change").click()
    expect(page.get_by_role("heading", name="Change kp-wizard-one so?")).to_be_visible()
    page.get_by_role("button", name="Change kp-wizard-one", exact=True).click()
    page.wait_for_url("**/deployments/kp-wizard-one/")
