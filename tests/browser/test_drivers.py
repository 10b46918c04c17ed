"""Driver and firmware of a server, and the packages whose digests are known, in a browser."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.deployments.stack_facts import facts

DRIVER = "Ascend-hdk-910b-npu-driver_25.5.2_linux-aarch64.run"
FIRMWARE = "Ascend-hdk-910b-npu-firmware_7.8.0.6.201.run"
WISH = "?driver=25.5.2&firmware=7.8.0.6.201"
PLAN, DOWN = f"/servers/kp-drv/drivers/{WISH}", f"/servers/kp-down/drivers/{WISH}"
LOOKS = [("dark", 1440, "en"), ("light", 360, "zh-hans")]
OLD = {"driver": "25.0.rc1.1", "firmware": "7.7.0.1.231", "firmware_range": ["7.0.0–7.9.99"], "driver_whole": True,
       "root": "helper"}  # fmt: skip
FAILURE = {
    "job": 1, "step": ["安装驱动 25.5.2", "Install the driver 25.5.2"], "at": "2026-08-20T03:04:05+00:00",
    "reason": ["DKMS 编译驱动失败。", "DKMS could not build the driver."],
    "before": {"driver": "25.0.rc1.1", "firmware": "7.7.0.1.231"},
    "wanted": {"driver": "25.5.2", "firmware": "7.8.0.6.201"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def servers(console):
    console.server(name="kp-drv", family="910B3", facts=facts("A2", **OLD), wished_stack="")
    console.server(name="kp-down", family="910B3", facts=facts("A2", cann=["9.1.0"], **{**OLD, "driver": "26.0.RC1"}))
    console.server(name="kp-broken", family="910B3", facts=facts("A2", **{**OLD, "driver_whole": False}),
                   maintenance=True, host_failure=FAILURE)  # fmt: skip
    yield
    console.forget()
    for name in ("kp-drv", "kp-down", "kp-broken"):
        console.remove(prefix=name)


@pytest.mark.parametrize("address", [PLAN, DOWN, "/servers/kp-drv/drivers/", "/packages/", "/servers/kp-broken/"])
@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, address, theme, width, language):
    page = pages.open(address, user="ada", theme=theme, width=width, language=language)
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert problems(page) == []


def test_digests_are_noted_and_then_the_change_is_confirmed_and_queued(console, pages):
    page = pages.open(PLAN, user="ada")
    expect(page.locator("main")).to_contain_text(f"No SHA-256 is known of {FIRMWARE}")
    page.get_by_role("link", name="Packages whose digests are known").click()
    page.get_by_label("Lines of sha256sum").fill(f"{'a' * 64}  {DRIVER}\n{'b' * 64}  {FIRMWARE}\n")
    page.get_by_role("button", name="Note it").click()
    expect(page.locator(".banner.success").first).to_contain_text("is noted")
    page.goto(PLAN)
    expect(page.get_by_role("heading", name="An upgrade")).to_be_visible()
    page.get_by_label("Type kp-drv to confirm").fill("kp-drv")
    page.get_by_role("button", name="Change driver and firmware").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Change driver and firmware · kp-drv")


def test_the_page_of_a_server_whose_driver_failed_leads_out(console, pages):
    page = pages.open("/servers/kp-broken/")
    alert = page.locator(".banner.error", has_text="Install the driver 25.5.2")
    expect(alert).to_contain_text("driver 25.0.rc1.1 (not whole)")
    alert.get_by_role("link", name="Driver and firmware…").click()
    expect(page.get_by_label("Driver version")).to_have_value("25.5.2")
