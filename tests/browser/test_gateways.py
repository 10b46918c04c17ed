"""Gateways, their keys and what keys used, in a browser."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

LOOKS = [("dark", 1440, "en"), ("light", 360, "zh-hans")]


@pytest.fixture
def made(console):
    yield console.gateway()
    console.no_gateways()


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
def test_axe_finds_nothing_and_nothing_sticks_out(pages, made, theme, width, language):
    page = pages.open("/gateways/", theme=theme, width=width, language=language)
    for address in (
        "/gateways/", f"/gateways/{made['name']}/", f"/gateways/{made['name']}/remove", "/gateways/keys/",
        f"/gateways/keys/{made['key']}/revoke",
    ):  # fmt: skip
        page.goto(address)
        expect(page.locator("h1")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert problems(page) == [], address


def test_a_key_is_made_shown_once_and_revoked_after_a_question(pages, made):
    page = pages.open("/gateways/keys/")
    page.get_by_label("Name").fill("search team")
    page.get_by_label("Days until it expires").fill("30")
    page.get_by_label(made["name"], exact=True).check()
    page.get_by_role("button", name="Make the key").click()
    expect(page.get_by_role("status").locator("code")).to_have_text(re.compile(r"^sk-[\w-]{43}$"))
    page.goto("/gateways/keys/")
    row = page.get_by_role("row", name=re.compile("search team"))
    expect(row).to_contain_text("valid")
    row.get_by_role("link", name="Revoke…").click()
    page.get_by_role("button", name="Revoke search team").click()
    expect(page.get_by_role("row", name=re.compile("search team"))).to_contain_text("revoked")
