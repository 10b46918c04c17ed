"""The page of a clean-up, in a real Chromium: its looks, what is ticked, the question, a look that ends meanwhile."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at

GIB = 1 << 30
FOUND = [
    ["plog:/root/ascend/log/debug/plog", 3 * GIB, 4210, ""],
    ["plog:/root/ascend/log/run/device-0", 40 << 20, 12, ""],
    ["stacks:/opt/ascend-console/stacks/vllm-ascend-0.13.0", 21 * GIB, 90_120, ""],
    ["stacks:/opt/ascend-console/stacks/vllm-ascend-0.18.0", 23 * GIB, 95_000, "It is in use: pid 4711."],
    ["images:docker/quay.io/ascend/vllm-ascend:v0.18.0-openeuler", 15 * GIB, 1, ""],
    ["downloads:/models/qwen3-235b-a22b/.cache/huggingface/download/model-00007-of-00118.safetensors.6f1a.incomplete",
     2 * GIB, 1, ""],
    ["logs:/var/log/npu", 1 * GIB, 300, "It belongs to another account. As root run: find /var/log/npu -xdev -type f "
     "-mmin +10 -delete"],
]  # fmt: skip
PAGE = "/servers/kp-01/cleanup"


@pytest.fixture
def seen(console):
    console.forget()
    console.heard(name="kp-01")
    yield console.looked(server="kp-01", found=FOUND)
    console.remove(prefix="kp-clean")


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
@pytest.mark.parametrize("name", ["cleanup", "cleanup-ask", "cleanup-empty"])
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, seen, name, theme, width, language):
    if name == "cleanup-empty":
        console.server(name="kp-clean")
    path = "/servers/kp-clean/cleanup" if name == "cleanup-empty" else PAGE
    page = pages.open(path, theme=theme, width=width, language=language, height=900 if width > 700 else 740)
    if name == "cleanup-ask":
        for box in page.locator("[name=target]").all():
            box.check()
        page.locator("#cleanup-form button[type=submit]").click()
        expect(page.locator(".cleanup-hit li").first).to_be_visible()
    look_at(page, name, theme, width, language)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_sum_follows_the_ticks_and_the_question_names_them(console, pages, seen):
    page = pages.open(PAGE)
    page.get_by_label("/root/ascend/log/debug/plog").check()
    page.get_by_label("vllm-ascend-0.13.0").check()
    expect(page.locator("#cleanup-sum")).to_have_text("2 ticked · 24.0 GiB")
    page.get_by_role("button", name="Delete what is ticked…").click()
    expect(page.get_by_role("heading", name="Delete 2 things (24.0 GiB) on kp-01?")).to_be_visible()
    page.get_by_role("button", name="Delete on kp-01").click()
    page.wait_for_url("**/jobs/*/")
    made = console.rows(job=console.newest_job())
    assert made["params"]["targets"] == [FOUND[2][0], FOUND[0][0]]


def test_the_list_comes_by_itself_when_a_look_ends_and_ticks_stay(console, pages, seen):
    page = pages.open(PAGE)
    page.get_by_label("/root/ascend/log/debug/plog").check()
    page.get_by_role("button", name="Look again").click()
    expect(page.locator("[data-job]")).to_be_visible()
    page.get_by_label("/root/ascend/log/debug/plog").check()
    job = console.newest_job()
    console.ended(job=job, state="failed")
    expect(page.locator("[data-job]")).to_have_count(0)
    expect(page.get_by_label("/root/ascend/log/debug/plog")).to_be_checked()
