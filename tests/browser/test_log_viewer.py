"""The log viewer as on-call staff use it: 2,000,000 lines, a live log whose connection breaks, a phone."""

import os
import re
import signal
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_job import ENDED, numbers, running, status, step, wait_in_view  # noqa: F401

LINES = 2_000_000
ERRORS = [700_123, 1_500_000]
NEEDLES = [12, 650_000, 1_999_900]
SPECIAL = {
    **{line: ["o", "the Needle of shard 7"] for line in NEEDLES},
    ERRORS[0]: ["e", "RuntimeError: NPU out of memory. Tried to allocate 2.34 GiB"],
    ERRORS[1]: ["e", "(Worker_TP3 pid=4711) ERROR 11-30 19:03:11 [executor.py:511] Worker failed"],
    1_999_990: ["o", "not text: \udcff\udcfe and \x00\x07"],
    1_999_995: ["g", "412"],
    1_999_996: ["o", "x" * 3000],
}


@pytest.fixture(scope="module")
def long(console):
    """The page of a job whose log holds LINES lines."""
    console.heard(name="kp-01")
    made = console.job(server="kp-01", by="olga", state="running")
    console.long_log(attempt=made["attempt"], lines=LINES, special=SPECIAL)
    return f"/jobs/{made['job']}/"


@pytest.fixture
def opened(pages, long):
    page = pages.open(long)
    wait_in_view(page, LINES)
    return page


def find(page, text):
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def hits(page):
    return page.locator("[data-log=hits]")


def said(page):
    return page.locator("[data-log=said]")


def test_two_million_lines_open_at_their_end_and_scroll(opened, long):
    took = []
    for _ in range(3):
        began = time.monotonic()
        assert opened.request.get(f"{long}lines?n=500").json()["n"] == 500
        took.append(time.monotonic() - began)
    assert min(took) < 0.3  # seconds, whatever the length
    expect(status(opened)).to_contain_text("lines 1,999,501–2,000,000 of 2,000,000 · following")
    expect(opened.locator("#L1999990 .log-text")).to_have_text("not text: \ufffd\ufffd and ␀␇")
    expect(opened.locator(".log-line.gap")).to_contain_text("412 lines were lost here")
    expect(opened.locator("#L1999996 .log-more")).to_have_text("1,000 more characters")
    opened.locator(".log-lines").focus()
    opened.locator(".log-lines").evaluate("(pane) => { pane.scrollTop = 0; }")
    expect(status(opened)).to_contain_text("lines 1,998,501–2,000,000 of 2,000,000 · paused")
    opened.keyboard.press("g")
    wait_in_view(opened, 1)
    assert opened.locator(".log-line").count() < 1200


def test_a_line_in_the_middle_is_reached_linked_and_copied(opened):
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    find(opened, ":1000000")
    wait_in_view(opened, 1_000_000)
    opened.locator("#L1000002 > a").click(modifiers=["Shift"])
    assert opened.url.endswith("#L1000000-L1000002")
    opened.reload()
    wait_in_view(opened, 1_000_000)
    expect(opened.locator(".log-line.chosen")).to_have_count(3)
    opened.keyboard.press("c")
    expect(said(opened)).to_have_text("Copied: 3 lines")
    plain = opened.evaluate("() => navigator.clipboard.readText()").split("\n")
    opened.locator("[data-log=copy-numbered]").click()
    expect(opened.locator(".log-chosen")).to_contain_text("Copy lines (3)")
    numbered = [f"{1_000_000 + i}  {line}" for i, line in enumerate(plain)]
    deadline = time.monotonic() + 5
    while opened.evaluate("() => navigator.clipboard.readText()").split("\n") != numbered:
        assert time.monotonic() < deadline
    opened.locator("[data-log=unchoose]").click()
    assert "#" not in opened.url
    opened.locator("[data-log=line]").fill("2000001")
    opened.locator("[data-log=line]").press("Enter")
    expect(said(opened)).to_have_text("This log has 2,000,000 lines.")


def test_the_whole_log_is_searched(opened):
    find(opened, "needle of")
    expect(hits(opened)).to_have_text("1 / 3")
    wait_in_view(opened, NEEDLES[0])
    opened.keyboard.press("Escape")
    find(opened, "needle of")
    expect(hits(opened)).to_have_text("2 / 3")
    wait_in_view(opened, NEEDLES[1])
    opened.keyboard.press("Enter")
    expect(hits(opened)).to_have_text("3 / 3")
    wait_in_view(opened, NEEDLES[2])
    opened.locator("[data-log=find]").blur()
    opened.keyboard.press("n")
    expect(hits(opened)).to_have_text("1 / 3")
    opened.keyboard.press("N")
    expect(hits(opened)).to_have_text("3 / 3")
    expect(opened.locator(".log-line.hit mark")).to_have_text("Needle of")
    opened.locator("[data-log=case]").click()
    expect(hits(opened)).to_have_text("no match")


def test_a_bad_expression_is_answered_in_words_and_a_good_one_finds(opened, pages):
    opened.locator("[data-log=regex]").click()
    find(opened, "needle(")
    expect(said(opened)).to_contain_text("expression")
    expect(hits(opened)).to_have_text("")
    assert all("422" in complaint for complaint in pages.complaints)
    pages.complaints.clear()
    opened.keyboard.press("Escape")
    find(opened, r"needle .* shard \d$")
    expect(said(opened)).to_be_hidden()
    expect(hits(opened)).to_have_text("1 / 3")
    expect(opened.locator("#L12")).to_have_class(re.compile("hit"))


def test_e_goes_to_the_first_error_of_the_whole_log(opened):
    for line in [*ERRORS, ERRORS[0]]:
        opened.keyboard.press("e")
        wait_in_view(opened, line)
        expect(opened.locator(f"#L{line}")).to_have_class(re.compile("chosen"))


def test_a_level_is_shown_alone_with_its_own_numbers_and_the_way_back(opened):
    opened.locator("[data-log=level]").select_option("error")
    expect(opened.locator("[data-log=filter-text]")).to_have_text("Errors 2 of 2,000,000 lines")
    assert numbers(opened) == ERRORS
    assert "level=error" in opened.url
    opened.reload()
    expect(opened.locator(".log-line > a")).to_have_text([str(line) for line in ERRORS])
    opened.locator(f"#L{ERRORS[0]} > a").click()
    opened.locator("[data-log=unfilter]").click()
    wait_in_view(opened, ERRORS[0])
    assert numbers(opened)[0] < ERRORS[0] - 20
    assert "level" not in opened.url


def test_a_process_is_shown_alone_and_the_search_stays_in_it(opened):
    opened.locator("[data-log=rank]").focus()
    option = opened.locator("[data-log=rank] option", has_text="TP3")
    expect(option).to_have_count(1)
    opened.locator("[data-log=rank]").select_option(option.get_attribute("value"))
    expect(opened.locator("[data-log=filter]")).to_be_visible()
    expect(opened.locator(".log-line").first).to_contain_text("Worker_TP3")
    opened.locator(".log-lines").focus()
    find(opened, "worker failed")
    expect(hits(opened)).to_have_text("1 / 1")
    wait_in_view(opened, ERRORS[1])


def test_without_the_console_the_loaded_lines_are_searched(quiet_pages, long):
    page = quiet_pages.open(long)
    wait_in_view(page, LINES)
    page.route(re.compile("/(find|first-error|filtered)"), lambda route: route.abort())
    find(page, "batch of")
    expect(hits(page)).to_have_class(re.compile("local"))
    expect(hits(page)).to_have_text(re.compile(r"^\d+ / \d+$"))
    page.locator("[data-log=regex]").click()
    expect(said(page)).to_contain_text("no regular expression can be searched")
    page.locator("[data-log=level]").select_option("error")
    expect(said(page)).to_contain_text("the log cannot be filtered")
    assert "level" not in page.url


def connection(page):
    return page.locator("[data-log=connection]")


def test_a_socket_that_is_cut_leaves_neither_hole_nor_double(quiet_pages, running, console):  # noqa: F811
    page, sockets = quiet_pages.open("/jobs/"), []
    page.route_web_socket("**/ws/", lambda socket: sockets.append((socket, socket.connect_to_server())))
    page.goto(running.path)
    expect(connection(page)).to_have_text("live")
    running.send(*[("o", f"before {i}") for i in range(20)])
    expect(page.locator("#L21")).to_be_visible()
    for one in sockets.pop():
        one.close()
    last = running.send(*[("o", f"meanwhile {i}") for i in range(700)])
    console.until(lambda: page.wait_for_timeout(20) or sockets)
    expect(page.locator(f"#L{last}")).to_be_visible()
    expect(connection(page)).to_have_text("live")
    expect(status(page)).to_contain_text(f"{last} lines")
    found = seen(page, last)
    assert [n for n, _text in found] == list(range(1, last + 1))
    assert [text for n, text in found if n > 21] == [f"meanwhile {i}" for i in range(700)]


def seen(page, last):
    """(number, text) of every line from the first to `last`, in order, as it is scrolled by."""
    lines = page.locator(".log-lines")
    lines.evaluate("(pane) => { pane.scrollTop = 0; }")
    found = set()
    for _ in range(200):
        page.wait_for_timeout(20)
        found.update(map(tuple, page.evaluate(DRAWN)))
        if any(n == last for n, _text in found):
            break
        lines.evaluate("(pane) => { pane.scrollTop += pane.clientHeight; }")
    return sorted(found)


DRAWN = """() => [...document.querySelectorAll(".log-line")].map((row) => [
    Number(row.querySelector("a").textContent), row.querySelector(".log-text").textContent])"""
PLACES = """() => [
    performance.getEntriesByType("resource").map((one) => one.name).filter((name) => name.includes("/js/log/")),
    [...document.querySelectorAll("link[rel=modulepreload]")].map((one) => one.href)]"""
SMALL = """() => [...document.querySelectorAll("#log :is(button, select, input, a.icon-button)")]
    .map((one) => [one, one.getBoundingClientRect()])
    .filter(([one, box]) => box.width && !one.closest(".log-lines, .log-here") && (box.height < 42 || box.width < 42))
    .map(([one]) => one.outerHTML.slice(0, 80))"""


def test_a_console_that_stands_still_is_seen_and_comes_back_whole(quiet_pages, running, console):  # noqa: F811
    page = quiet_pages.open("/jobs/")
    page.clock.install()
    page.goto(running.path)
    expect(connection(page)).to_have_text("live")
    web = console.parts["web"].pid
    os.kill(web, signal.SIGSTOP)
    try:
        for _ in range(3):  # a ping that nobody answers
            page.clock.run_for(5000)
        expect(connection(page)).to_have_text(re.compile(r"^stalled since \d\d:\d\d:\d\d$"))
        last = running.send(*[("o", f"row {i}") for i in range(40)])
        running.stored(last)
    finally:
        os.kill(web, signal.SIGCONT)
    expect(page.locator(f"#L{last}")).to_be_visible()
    expect(connection(page)).to_have_text("live")
    assert numbers(page) == list(range(1, last + 1))
    running.send(ENDED)
    expect(connection(page)).to_have_text("complete")


def test_the_keys_are_listed_and_modules_come_at_once(opened):
    opened.keyboard.press("?")
    dialog = opened.locator("dialog#keys")
    for key in ("/", "n", "N", "e", "g", "G", "f", "w", "t", "c"):
        expect(dialog.get_by_text(key, exact=True).first).to_be_visible()
    opened.keyboard.press("Escape")
    loaded, named = opened.evaluate(PLACES)
    assert set(loaded) <= set(named)


@pytest.mark.parametrize(("theme", "language"), [("light", "zh-hans"), ("dark", "en")])
def test_on_a_phone_the_tools_are_a_sheet(pages, running, theme, language):  # noqa: F811
    running.stored(running.send(step(1), *[("o", f"(Worker_TP{i % 4} pid=7) row {i} " + "y" * 80) for i in range(400)]))
    page = pages.open(running.path, theme=theme, language=language, width=360, height=740)
    wait_in_view(page, 402)
    assert numbers(page)[0] >= 203  # a tail of 200 lines
    page.locator("#log").evaluate("(log) => log.scrollIntoView()")
    find(page, "row 39")
    page.locator("[data-log=open-tools]").click()
    expect(page.locator("[data-log=tools]")).to_be_visible()
    assert problems(page) == []
    assert page.evaluate(SMALL) == []
    page.keyboard.press("Escape")
    expect(page.locator("[data-log=tools]")).to_be_hidden()
    expect(page.locator("[data-log=open-tools]")).to_be_focused()
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
