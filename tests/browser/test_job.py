import json
import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems


@pytest.fixture(autouse=True)
def no_jobs(console):
    console.forget()
    for name in ("kp-01", "kp-sim"):
        console.heard(name=name)


def event(**fields):
    return ["v", json.dumps(fields, ensure_ascii=False)]


def step(n, of=2):
    return event(e="step", n=n, of=of, title=[f"第{n}步", f"Step number {n}"], argv=["true"])


ENDED = event(e="ended", state="succeeded", exit=0, reason=None)


@pytest.fixture
def running(console):
    """A job whose server sends; `send(*records)` writes what its shipper would."""

    class Running:
        def __init__(self):
            made = console.job(server="kp-01", by="olga")
            self.attempt, self.path, self.id = made["attempt"], f"/jobs/{made['job']}/", made["job"]

        def send(self, *records):
            return console.send(attempt=self.attempt, records=[list(record) for record in records])

        def stored(self, lines):
            console.until(lambda: console.stored(attempt=self.attempt) >= lines, 30)

    made = Running()
    made.send(event(e="started", pid=1, host="kp-01"))
    return made


def status(page):
    return page.locator("[data-log=status]")


def numbers(page):
    """The line numbers that are drawn, in order."""
    return page.locator(".log-line > a").evaluate_all("(links) => links.map((link) => Number(link.textContent))")


def in_view(page, line):
    return page.evaluate(
        """(line) => { const row = document.getElementById(`L${line}`), pane = document.querySelector(".log-lines");
        if (!row) return false;
        const a = row.getBoundingClientRect(), b = pane.getBoundingClientRect();
        return a.top >= b.top - 1 && a.bottom <= b.bottom + 1; }""",
        line,
    )


def wait_in_view(page, line):
    page.wait_for_function(
        """(line) => { const row = document.getElementById(`L${line}`), pane = document.querySelector(".log-lines");
        const a = row?.getBoundingClientRect(), b = pane.getBoundingClientRect();
        return a && a.top >= b.top - 1 && a.bottom <= b.bottom + 1; }""",
        arg=line,
    )


def test_lines_arrive_while_one_looks_and_the_end_is_followed(pages, running):
    page = pages.open(running.path)
    expect(status(page)).to_contain_text("1 line · following")
    last = running.send(*[("o", f"row {i}") for i in range(300)])
    expect(page.locator(f"#L{last}")).to_contain_text("row 299")
    wait_in_view(page, last)
    assert page.locator("#live-chip").inner_text() == "live"


def test_a_reader_who_scrolls_up_is_left_there_and_new_lines_are_counted(pages, running):
    last = running.send(*[("o", f"row {i}") for i in range(400)])
    running.stored(last)
    page = pages.open(running.path)
    wait_in_view(page, last)
    page.locator(".log-lines").hover()
    page.mouse.wheel(0, -2000)
    expect(page.locator("[data-log=follow]")).to_have_attribute("aria-pressed", "false")
    page.wait_for_timeout(200)
    seen = [line for line in numbers(page) if in_view(page, line)]
    running.send(*[("o", "later") for _ in range(25)])
    expect(page.locator("[data-log=follow]")).to_have_text("Follow · 25 new")
    assert [line for line in numbers(page) if in_view(page, line)] == seen
    page.locator("[data-log=follow]").click()
    wait_in_view(page, last + 25)


def test_two_hundred_thousand_lines_neither_freeze_nor_fill_the_page(pages, running):
    for part in range(20):
        running.send(*[("o", f"row {part * 10_000 + i}") for i in range(10_000)])
    running.stored(200_001)
    began = time.monotonic()
    page = pages.open(running.path)
    wait_in_view(page, 200_001)
    opened = time.monotonic() - began
    expect(status(page)).to_contain_text("lines 199,502–200,001 of 200,001")
    page.locator(".log-lines").focus()
    for _ in range(12):
        page.locator(".log-lines").evaluate("(pane) => { pane.scrollTop = 0; }")
        page.wait_for_timeout(60)
    assert numbers(page)[0] < 199_502
    page.keyboard.press("g")
    wait_in_view(page, 1)
    page.keyboard.press("G")
    wait_in_view(page, 200_001)
    assert page.locator(".log-line").count() < 1200
    assert opened < 8  # seconds, on a machine that does other things too


def test_every_line_can_be_reached_by_scrolling_down_from_a_link(pages, running):
    last = running.send(*[("o", f"row {i}") for i in range(5000)])
    running.stored(last)
    page = pages.open(f"{running.path}#L1200")
    wait_in_view(page, 1200)
    seen = set()
    for _ in range(400):
        seen.update(numbers(page))
        if last in seen:
            break
        page.locator(".log-lines").evaluate("(pane) => { pane.scrollTop += pane.clientHeight; }")
        page.wait_for_timeout(30)
    assert seen.issuperset(range(1200, last + 1))


def test_chosen_lines_are_a_link_that_survives_a_reload(pages, running):
    running.stored(running.send(*[("o", f"row {i}") for i in range(200)]))
    page = pages.open(running.path)
    wait_in_view(page, 201)
    page.locator("#L193 > a").click()
    page.locator("#L197 > a").click(modifiers=["Shift"])
    assert page.url.endswith("#L193-L197")
    page.reload()
    expect(page.locator(".log-line.chosen")).to_have_count(5)
    wait_in_view(page, 193)
    expect(page.locator("[data-log=copy]")).to_have_text("Copy lines (5)")
    page.keyboard.press("Escape")
    expect(page.locator(".log-line.chosen")).to_have_count(0)
    assert "#" not in page.url


def test_hostile_text_is_shown_and_not_obeyed(pages, running):
    lines = [
        "<img src=x onerror=alert(1)><script>window.hacked = 1</script>", "\x1b]0;evil\x07\x1b[31mred\x1b[0m",
        "a\x00b\u202ec", "x" * 30_000,
    ]  # fmt: skip
    last = running.send(*[("o", line) for line in lines], ["+", "y" * 30_000], ["v", "{broken"], ["?", "strange"])
    running.stored(last)
    page = pages.open(running.path)
    page.on("dialog", lambda dialog: pytest.fail("a script of the log ran"))
    expect(page.locator("#L2 .log-text")).to_have_text(lines[0])
    expect(page.locator("#L3 .ansi-fg-1")).to_have_text("red")
    expect(page.locator("#L4 .log-text")).to_have_text("a␀b⟨202E⟩c")
    expect(page.locator("#L5 .log-more")).to_have_text("58,000 more characters")
    page.locator("#L5 .log-more").click()
    expect(page.locator("#L5 .log-more")).to_have_text("26,000 more characters")
    assert page.evaluate("window.hacked") is None


def test_progress_is_one_line_and_lost_lines_leave_a_mark(pages, running):
    page = pages.open(running.path)
    running.send(("p", "10 %"), ("p", "20 %"))
    expect(page.locator(".log-line.progress")).to_have_text(re.compile("20 %"))
    assert page.locator(".log-line.progress").count() == 1
    running.send(("p", "30 %"), ("o", "100 %"), ("g", "41"))
    expect(page.locator(".log-line.gap")).to_contain_text("41 lines were lost here")
    assert page.locator(".log-line.progress").count() == 0
    assert page.locator(".log-line.line").all_inner_texts() == ["5\n100 %"]


def test_steps_fold_and_their_lines_are_found_again_by_search(pages, running):
    records = [
        step(1),
        *[("o", f"first {i}") for i in range(5)],
        event(e="step_end", n=1, state="succeeded", exit=0, took_s=2),
    ]
    records += [step(2), *[("o", f"second {i}") for i in range(3)]]
    running.stored(running.send(*records))
    page = pages.open(running.path)
    heading = page.locator(".log-lines .log-step").first
    expect(heading).to_contain_text("Step number 1")
    expect(heading).to_contain_text("2.0 s")
    heading.click()
    expect(heading).to_have_attribute("aria-expanded", "false")
    expect(page.get_by_text("first 3")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("first 3")
    expect(page.get_by_text("first 3")).to_be_visible()
    expect(heading).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("second")
    expect(page.locator("[data-log=hits]")).to_have_text("1 / 3")
    page.keyboard.press("Enter")
    expect(page.locator("[data-log=hits]")).to_have_text("2 / 3")
    expect(page.locator(".log-line.hit mark")).to_have_text("second")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("nowhere")
    expect(page.locator("[data-log=hits]")).to_have_text("no match")


def test_e_goes_from_error_to_error(pages, running):
    filler = [("o", "calm")] * 120
    running.stored(running.send(*filler, ("e", "ValueError: one"), *filler, ("o", "ERROR two"), *filler))
    page = pages.open(f"{running.path}#L2")
    wait_in_view(page, 2)
    for line in (122, 243, 122):
        page.keyboard.press("e")
        wait_in_view(page, line)
        assert page.url.endswith(f"#L{line}")


def test_times_are_shown_on_demand_in_three_ways(pages, running):
    running.stored(running.send(("o", "hello")))
    page = pages.open(running.path)
    expect(page.locator("#L2")).to_be_visible()
    assert page.locator(".log-line time").count() == 0
    for way, pattern in {
        "relative": r"^\+\d+:\d\d\.\d{3}$",
        "local": r"^[\d:.]+ \+08:00$",
        "utc": r"^[\d:.]+Z$",
    }.items():
        page.locator("[data-log=times]").select_option(way)
        expect(page.locator("#L2 time")).to_have_text(re.compile(pattern))
    page.reload()
    expect(page.locator("#L2 time")).to_have_text(re.compile("Z$"))


def test_the_verdict_steps_and_report_follow_the_job(pages, running):
    page = pages.open(running.path)
    item = {
        "e": "item",
        "key": "fw",
        "title": ["固件", "Firmware"],
        "verdict": "failed",
        "found": "7.7",
        "wanted": "7.8",
    }
    running.send(step(1, 6), event(**item, remedy=["升级。", "Upgrade it."]))
    expect(page.locator(".verdict h2")).to_have_text("Checking kp-01")
    expect(page.locator(".verdict .worst")).to_contain_text("Upgrade it.")
    expect(page.locator(".step").first).to_contain_text("Step number 1")
    running.send(event(e="step_end", n=1, state="succeeded", exit=0, took_s=1), ENDED)
    expect(page.locator(".verdict h2")).to_have_text("1 item failed on kp-01")
    expect(page.locator(".page-head .chip")).to_have_text("Succeeded")
    expect(status(page)).to_contain_text("complete")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    page.locator(".worst a").click()
    expect(page.locator(".log-line.chosen")).to_contain_text("Firmware")


def test_a_restart_of_the_console_loses_no_line_and_doubles_none(quiet_pages, running, console):
    page = quiet_pages.open(running.path)
    expect(status(page)).to_contain_text("following")
    running.send(*[("o", f"before {i}") for i in range(20)])
    expect(page.locator("#L21")).to_be_visible()
    console.stop("web")
    expect(page.locator("#live-chip")).to_contain_text("stalled")
    running.send(*[("o", f"while away {i}") for i in range(20)])
    running.stored(41)
    console.start("web")
    console.wait()
    expect(page.locator("#L41")).to_be_visible(timeout=15_000)
    expect(page.locator("#live-chip")).to_have_text("live")
    running.send(*[("o", f"after {i}") for i in range(20)])
    expect(page.locator("#L61")).to_be_visible()
    assert numbers(page) == list(range(1, 62))


def test_where_websockets_are_blocked_the_page_polls_and_says_why(quiet_pages, running):
    page = quiet_pages.open("/jobs/")
    page.route_web_socket("**/ws/", lambda socket: socket.close())
    page.goto(running.path)
    expect(page.locator("#live-chip")).to_have_text("polling", timeout=15_000)
    assert "Websockets do not get through" in page.locator("#live-chip").get_attribute("title")
    running.send(("o", "by polling"), ENDED)
    expect(page.locator("#L2")).to_contain_text("by polling")
    expect(page.locator(".page-head .chip")).to_have_text("Succeeded")


def test_from_the_form_to_the_job(pages, console):
    page = pages.open("/jobs/")
    page.get_by_role("link", name="Queue job").first.click()
    page.fill("[name=server]", "kp-sim")
    expect(page.locator("#consequence")).to_contain_text("kp-sim is simulated")
    page.check("[name=p-deep]")
    expect(page.locator("#consequence")).to_contain_text("--deep")
    page.fill("[name=ticket]", "OPS-7")
    page.get_by_role("button", name="Queue job").click()
    expect(page.locator(".verdict h2")).to_have_text("Waiting for kp-sim to take it")
    expect(page.locator(".page-head .simulated")).to_be_visible()
    found = console.rows(job=console.newest_job())
    assert (found["params"], found["ticket"]) == ({"deep": True}, "OPS-7")


def test_what_was_typed_before_the_script_came_is_shown_too(pages, console):
    page = pages.open("/jobs/")
    scripts = []
    page.route("**/job_form.js", lambda route: scripts.append(route))
    page.goto("/jobs/new", wait_until="commit")
    page.fill("[name=server]", "kp-sim")
    console.until(lambda: page.wait_for_timeout(20) or scripts)
    assert "kp-sim is simulated" not in page.locator("#consequence").inner_text()
    scripts[0].continue_()
    expect(page.locator("#consequence")).to_contain_text("kp-sim is simulated")


def test_cancel_names_what_it_hits_and_can_be_left(pages, running, console):
    page = pages.open(running.path)
    page.locator("#cancel-open").click()
    dialog = page.locator("dialog#cancel")
    expect(dialog).to_contain_text(f"Cancel “Check a server” on kp-01 (#{running.id})?")
    dialog.get_by_text("Let it go on").click()
    expect(dialog).to_be_hidden()
    page.locator("#cancel-open").click()
    dialog.get_by_role("button").click()
    expect(page.locator(".page-head")).to_contain_text("Cancelling")


def test_the_list_follows_jobs(pages, running, console):
    page = pages.open("/jobs/?state=running")
    expect(page.locator("#job-rows")).to_contain_text(f"#{running.id}")
    running.send(ENDED)
    expect(page.locator("#job-rows")).to_contain_text("No job matches these filters")


@pytest.mark.parametrize(
    "theme, language, width",
    [("light", "en", 1440), ("dark", "zh-hans", 1440), ("light", "zh-hans", 360), ("dark", "en", 360)],
)
def test_job_pages_are_accessible_and_fit(pages, running, theme, language, width):
    item = {
        "e": "item",
        "key": "fw",
        "title": ["固件", "Firmware"],
        "verdict": "warning",
        "found": "7" * 60,
        "wanted": "7.8",
    }
    colours = "".join(
        f"\x1b[{code}m{code} " for code in [*range(30, 38), *range(90, 98), "38;5;226", "38;5;19", "2", "41;33"]
    )
    running.stored(
        running.send(step(1), event(**item, remedy=["升级。", "Upgrade."]), ("o", colours), ("g", "3"), ("p", "1 %"))
    )
    for path in (running.path, "/jobs/", "/jobs/new?server=kp-sim", f"{running.path}cancel"):
        page = pages.open(path, theme=theme, language=language, width=width, height=800)
        if path == running.path:
            expect(page.locator(".log-line.progress")).to_be_visible()
        assert problems(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_on_a_phone_the_follow_button_stands_at_the_thumb_and_targets_are_large(pages, running):
    running.stored(running.send(*[("o", "x" * 300)] * 50))
    page = pages.open(running.path, width=360, height=740)
    page.locator("#log").scroll_into_view_if_needed()
    button = page.locator("[data-log=follow]")
    page.wait_for_function("() => document.getElementById('log').classList.contains('in-view')")
    box = button.bounding_box()
    assert box["y"] > 740 / 2 and box["height"] >= 44
    assert page.locator(".log-lines").evaluate("(pane) => pane.scrollWidth <= pane.clientWidth + 1")  # wrapped


def test_words_without_end_widen_no_page(pages, running):
    long = '"><img/src=x>' + "x" * 300
    item = {"e": "item", "key": "k", "title": [long, long], "verdict": "failed", "found": long, "wanted": long}
    running.stored(
        running.send(
            event(e="step", n=1, of=1, title=[long, long], argv=[long]),
            event(**item, remedy=[long, long], job=None),
            event(e="step_end", n=1, state="failed", exit=1, took_s=0.1),
            event(e="ended", state="failed", exit=1, reason=[long, long]),
        )
    )
    for path in (running.path, "/jobs/"):
        page = pages.open(path, width=360, height=800)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
