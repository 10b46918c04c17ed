import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems, sign_in


@pytest.fixture(autouse=True)
def no_lockouts(console):
    console.forget()


def test_a_wrong_password_is_answered_in_words_and_a_right_one_opens_the_page_asked_for(quiet_pages):
    page = quiet_pages.open("/jobs/?state=failed", user=None)
    expect(page.get_by_text("Sign in to open the page you asked for.")).to_be_visible()
    page.fill("[name=username]", "olga")
    page.fill("[name=password]", "wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("User name and password do not match. 4 tries are left")
    expect(page.locator("[name=username]")).to_have_value("olga")
    expect(page.locator("[name=password]")).to_be_focused()
    page.keyboard.type("a-long-password")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs/\?state=failed$"))


def test_five_wrong_passwords_pause_the_sign_in_and_the_page_says_for_how_long(quiet_pages):
    page = quiet_pages.open("/login/", user=None)
    for _ in range(5):
        sign_in(page, "victor", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("paused for 15 minutes")
    sign_in(page, "victor")
    expect(page.get_by_role("alert")).to_contain_text("paused for 15 minutes")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_sign_in_page_is_accessible_and_fits_a_phone(quiet_pages, theme, language):
    page = quiet_pages.open("/login/", user=None, theme=theme, language=language, width=360, height=740)
    sign_in(page, "olga", "wrong")
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("html").get_attribute("lang") == ("en" if language == "en" else "zh-Hans")


def test_signing_out_leads_back_to_the_sign_in_page(pages):
    page = pages.open("/login/", user=None)
    sign_in(page, "olga")
    page.goto("/jobs/")
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login/"))


def test_an_address_without_a_page_is_answered_in_words(quiet_pages):
    page = quiet_pages.open("/jobs/424242/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("There is no job #424242.")
    assert problems(page) == []
