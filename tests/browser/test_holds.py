"""The pages of holds and of others' engines in a real Chromium: their looks, and a hold from a server's page to its
end."""

import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at
from tests.waiting import until

PAGES = {
    "holds": "/holds/", "hold-new": "/holds/new?server=kp-hold", "hold-end": "/holds/{pk}/?do=end",
    "engines": "/engines/", "hold-server": "/servers/kp-hold/",
}  # fmt: skip


@pytest.fixture
def there(console):
    console.server(name="kp-hold")
    console.sample(name="kp-hold", npus=[{}] * 4)
    until(lambda: len(console.bus_ids(name="kp-hold")) == 4)
    yield console
    console.none_held()
    console.remove(prefix="kp-hold")


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, there, theme, width, language):
    console.none_held()
    page = pages.open("/holds/", theme=theme, width=width, language=language)
    look_at(page, "holds-empty", theme, width, language)
    assert problems(page) == []
    pk = console.held()
    for name, path in PAGES.items():
        page = pages.open(path.format(pk=pk), theme=theme, width=width, language=language)
        look_at(page, name, theme, width, language)
        assert problems(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_a_hold_from_the_server_s_page_to_its_end(console, pages, there):
    page = pages.open("/servers/kp-hold/")
    page.get_by_role("link", name="Hold… NPU 1").click()
    expect(page.get_by_label("NPU 1")).to_be_checked()
    page.get_by_label("Kept for").fill("vision")
    page.get_by_label("Reason").fill("demo")
    page.get_by_role("button", name="Hold these NPUs").click()
    expect(page.get_by_role("row", name="vision kp-hold")).to_contain_text("0000:82:00.0")
    server = pages.open("/servers/kp-hold/")
    expect(server.locator("#npu-1")).to_contain_text("vision until")
    page.get_by_role("link", name="End… vision, kp-hold", exact=True).click()
    page.get_by_role("button", name="End the hold").click()
    expect(page.get_by_role("heading", name="No NPU is on hold")).to_be_visible()

    def is_free():
        console.sample(name="kp-hold", npus=[{}] * 4, seq=int(time.time() * 10))  # as a server does, again and again
        return "vision" not in server.locator("#npu-1").inner_text()

    until(is_free, 15, 0.5)
