"""The page on which a model is quantized, in a real Chromium: its looks, and what follows what is chosen."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at


@pytest.fixture
def artifact(console):
    console.server(name="kp-quant", family="910B3")
    yield console.quantizable(server="kp-quant")
    console.remove(prefix="kp-quant")


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
def test_axe_finds_nothing_and_nothing_sticks_out(pages, artifact, theme, width, language):
    page = pages.open(f"/models/quantize?artifact={artifact}", theme=theme, width=width, language=language)
    expect(page.locator("#consequence")).to_contain_text("qwen2.5-7b-w8a8")
    look_at(page, "quantize", theme, width, language)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_it_would_take_follows_what_is_chosen(console, pages, artifact):
    page = pages.open(f"/models/quantize?artifact={artifact}")
    beside = page.locator("#consequence")
    expect(beside).to_contain_text("verified for this model and type")
    expect(beside).to_contain_text("vLLM-Ascend loads it on A2")
    page.get_by_label("Type", exact=True).fill("weight_bits 8, act_bits 16")
    expect(beside).to_contain_text("default-w8a16")
    expect(beside).to_contain_text("No recipe is verified")
    page.get_by_label("Accept a recipe that is not verified").check()
    expect(beside).not_to_contain_text("No recipe is verified")
    page.get_by_label("0000:82:00.0").check()
    expect(beside).to_contain_text("--device npu")
    expect(beside).to_contain_text("NPU 0000:82:00.0")
    page.get_by_role("button", name="Quantize").click()
    page.wait_for_url("**/jobs/*/")
    made = console.rows(job=console.newest_job())
    assert made["params"]["quant_type"] == "w8a16" and made["params"]["npus"] == ["0000:82:00.0"]
