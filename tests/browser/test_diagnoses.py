"""On call with a phone: from an alert to the decisive line and its remedy in three taps; the page of diagnoses."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import look_at

PHONE = {"width": 360, "height": 740}


@pytest.fixture
def made(console):
    console.forget()
    yield console.fallen_replica()
    console.no_fallen_replica()
    console.no_deployments()
    console.forget()


class Taps:
    """Taps on what the finger can reach, and how many there were."""

    def __init__(self):
        self.n = 0

    def __call__(self, locator):
        locator.scroll_into_view_if_needed()
        locator.tap()
        self.n += 1


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_three_taps_lead_from_the_alert_to_the_line_and_its_remedy(console, pages, made, language):
    page, tap = pages.open("/alerts/", language=language, **PHONE), Taps()
    look_at(page, "alert", "light", 360, language)
    tap(page.locator(".alert h2 a").first)
    expect(page).to_have_url(f"{console.url}{made['page']}?piece={made['piece']}#L{made['line']}")
    card = page.locator(".diagnosis")
    expect(card).to_be_visible()
    expect(card.locator(".cause")).to_be_in_viewport()  # what is wrong stands there without a tap
    look_at(page, "diagnosis", "light", 360, language)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    tap(card.locator(".decisive"))
    expect(
        page.locator(".log-line.chosen, .chosen", has_text="To serve at least one request").first
    ).to_be_in_viewport()
    look_at(page, "diagnosis-line", "light", 360, language)
    tap(card.locator(".remedies .button").first)
    page.wait_for_url("**/remedy#*")
    remedy = page.locator("li:target")
    expect(remedy).to_be_in_viewport()
    expect(remedy.locator(".sum").first).to_be_visible()
    assert tap.n == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    look_at(page, "diagnosis-remedy", "light", 360, language)


def test_the_page_of_diagnoses(console, pages, made):
    console.many_diagnoses()
    for theme, width, language in (("light", 1440, "zh-hans"), ("dark", 360, "zh-hans")):
        page = pages.open("/diagnoses/", theme=theme, width=width, language=language)
        expect(page.locator(".day-bars rect").first).to_be_visible()
        assert problems(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        look_at(page, "diagnoses", theme, width, language)
        page.locator("table.diagnoses tbody a").first.click()
        expect(page.locator(".days .chip")).to_have_count(1)
        pages.close()
