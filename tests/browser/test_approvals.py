"""A reset in a real browser: asked for by one administrator, decided by another."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

LOOKS = [(1440, "dark", "zh-hans"), (1440, "light", "en"), (360, "light", "en"), (360, "dark", "zh-hans")]


@pytest.fixture
def path(console):
    console.forget()
    console.user(name="boss", role="administrator")
    console.sessions.pop("boss", None)  # it is another account now
    yield f"/jobs/{console.reset()}/"
    console.forget()
    console.remove(prefix="r-")


def test_another_administrator_approves_and_the_first_page_follows(pages, path):
    mine = pages.open(path, user="ada")
    expect(mine.get_by_text("Who asked for a job cannot decide about it.")).to_be_visible()
    theirs = pages.open(path, user="boss")
    theirs.fill("#note", "nobody trains there")
    theirs.click("#job-approve")
    expect(theirs.locator("#job-approve")).to_have_count(0)
    for page in (theirs, mine):
        expect(page.locator(".page-facts")).to_contain_text("nobody trains there")
        expect(page.locator("#approval-title")).to_have_count(0)


def test_what_was_typed_stays_while_the_page_is_drawn_anew(pages, console, path):
    page = pages.open(path, user="boss")
    page.fill("#note", "half a sentence")
    page.evaluate("document.getElementById('note').dataset.old = '1'")
    with page.expect_response(lambda answer: answer.request.headers.get("x-part") == "1"):
        console.told(job=int(path.split("/")[2]))
    expect(page.locator("#note[data-old]")).to_have_count(0)  # another field: its form has a fresh token
    expect(page.locator("#note")).to_have_value("half a sentence")


def test_a_rejection_needs_a_note(pages, path):
    page = pages.open(path, user="boss")
    page.click("#job-reject")
    expect(page.get_by_text("Who rejects a job says why.")).to_be_visible()
    page.fill("#note", "a training runs there")
    page.click("#job-reject")
    expect(page.locator(".verdict")).to_contain_text("Rejected by boss: a training runs there")


@pytest.mark.parametrize(("width", "theme", "language"), LOOKS)
@pytest.mark.parametrize("user", ["boss", "ada", "olga"])
def test_the_page_is_sound_at_every_width(pages, path, user, width, theme, language):
    page = pages.open(path, width=width, theme=theme, language=language, user=user)
    expect(page.locator("#approval-title")).to_be_visible()
    expect(page.locator("#job-approve")).to_have_count(1 if user == "boss" else 0)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
