"""Logs of several replicas in one view by time, and a log behind a link."""

import os
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

SHOTS = os.environ.get("SHOTS", "")


@pytest.fixture(scope="module")
def made(console):
    yield console.merged()
    console.merged_gone()


def shot(page, name):
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def names(page):
    return page.locator(".log-line .many-name").all_text_contents()


def test_lines_of_all_replicas_stand_by_time_with_their_names_and_links(console, pages, made):
    page = pages.open("/deployments/many-logs/logs")
    expect(page.locator(".log-line").last).to_contain_text("replica 3 step 399")
    assert names(page)[-3:] == ["#1", "#2", "#3"]
    link = page.locator(".log-line a").last
    assert link.get_attribute("href") == f"/deployments/many-logs/replicas/3/log?piece={made['pieces'][2]}#L400"
    sources = page.locator(".many-source")
    expect(sources.nth(1)).to_contain_text("its clock is 4.2 s fast, corrected")
    expect(sources.nth(2)).to_contain_text("0.6 s slow")
    colours = page.locator(".many-name").evaluate_all(
        "all => [...new Set(all.map((one) => getComputedStyle(one).color))]"
    )
    assert len(colours) == 3
    # further up, without a line twice or missing
    for _ in range(6):
        page.locator(".log-lines").evaluate("pane => { pane.scrollTop = 400; pane.scrollTop = 0; }")
        page.wait_for_load_state("networkidle")
    expect(page.locator(".log-line").first).to_contain_text("replica 1 step 0")
    expect(page.locator("[data-log=status]")).to_contain_text("1,200 of 1,200 lines")
    # the end moves, and a line that comes late stands where it belongs
    page.click("[data-log=follow]")
    console.merged_more(piece=made["pieces"][0], texts=["INFO one more"], at=400 * 30 + 5000)
    expect(page.locator(".log-line").last).to_contain_text("one more")
    console.merged_more(piece=made["pieces"][1], texts=["INFO was late"], at=400 * 30 + 4000 + 4200)
    expect(page.locator(".log-line", has_text="was late")).to_have_count(1)
    assert page.locator(".log-line").last.inner_text().endswith("one more")
    # the next error, and a log that is switched off
    page.keyboard.press("e")
    expect(page.locator(".log-line.chosen")).to_contain_text("replica 2 broke")
    sources.nth(1).click()
    expect(page.locator(".log-line", has_text="replica 2")).to_have_count(0)
    page.click("[data-log=none]")
    expect(page.locator("[data-log=status]")).to_contain_text("Every log is switched off.")
    page.click("[data-log=all]")
    expect(page.locator(".log-line", has_text="replica 2").first).to_be_attached()
    assert not pages.complaints


@pytest.mark.parametrize("width, theme", [(1440, "light"), (360, "dark")])
def test_it_reads_at_every_width(pages, made, width, theme):
    page = pages.open("/deployments/many-logs/logs", width=width, theme=theme, language="zh-hans")
    expect(page.locator(".log-line").last).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator(".many-source").nth(2)).to_be_visible()
    assert problems(page) == []
    shot(page, f"merged_{width}_{theme}")


def test_a_link_shows_one_log_to_somebody_without_an_account(console, pages, made):
    page = pages.open("/deployments/many-logs/replicas/1/log")
    page.click("#shares summary")
    shot(page, "shares")
    page.click("#shares button[type=submit]")
    address = page.inner_text("#share-url")
    shot(page, "share_made")
    other = pages.open(address, user=None, width=360)
    expect(other.locator(".log-line").last).to_be_visible()
    sockets = []
    other.on("websocket", lambda one: sockets.append(one.url))
    console.merged_more(piece=made["pieces"][0], texts=["INFO by the link"], at=900_000)
    expect(other.locator(".log-line").last).to_contain_text("by the link")
    assert other.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems(other) == []
    shot(other, "shared_360")
    page.click("text=Back to the log")
    page.click("#shares summary")
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#shares button.danger")
    expect(other.locator("#shared-note")).to_contain_text("works no longer")
    assert sockets == []
    pages.complaints[:] = [one for one in pages.complaints if not re.search("410", one)]


SERVER = """
const logs = ["1.1", "2.2", "3.3"], many = 9_000, all = [];
for (let i = 1; i <= many; i += 1) {
  logs.forEach((key, k) => all.push([key, `e${k + 1}-1`, i, i * 10 + k, `${i * 10 + k}\\to\\tline ${i}`]));
}
const asked = (text) => new Map(text.split("~").map((word) => [word.split(":")[0], Number(word.split(".").at(-1))]));
const told = (places) => [...places].map(([key, line]) => `${key}:e${key[0]}-1.${line}`).join("~");
const ends = told(new Map(logs.map((key) => [key, many + 1])));
window.fetch = async (url) => {
  const query = new URL(url, location.href).searchParams, n = Number(query.get("n"));
  const off = (query.get("off") ?? "").split(","), there = all.filter(([key]) => !off.includes(key));
  const low = asked(query.get("before") ?? ends), high = query.get("after") && asked(query.get("after"));
  const lines = high
    ? there.filter(([key, , line]) => line > high.get(key)).slice(0, n)
    : there.filter(([key, , line]) => low.has(key) && line < low.get(key)).slice(-n);
  const before = new Map(low), after = new Map(high || [...low].map(([key, line]) => [key, line - 1]));
  for (const [key, , line] of lines) after.set(key, line);
  for (const [key, , line] of lines.toReversed()) before.set(key, line);
  const sources = logs.map((key) => ({ key, name: key, lines: many })), total = there.length;
  return { ok: true, json: async () => ({ sources, lines, total, before: told(high || before), after: told(after) }) };
};
const { Many, woven } = await import("/static/js/log/many.js");
const held = (rows) => {
  const last = new Map();
  for (const { source, n } of rows) {
    if (last.has(source) && last.get(source) !== n - 1) return `${source}: ${n} behind ${last.get(source)}`;
    last.set(source, n);
  }
  return rows.length;
};
const view = new Many({ url: "/x?", changed: () => {} });
"""


@pytest.fixture
def run(pages):
    page = pages.open("/jobs/")
    return lambda code: page.evaluate(f"async () => {{ {SERVER} {code} }}")


def test_what_is_loaded_is_bounded_and_has_no_hole_up_and_down_again(run):
    found = run("""
      await view.tail(500);
      const seen = [held(view.rows)];
      while (!view.atStart) { await view.older(); if (view.rows.length > 20_000) return "too many"; }
      seen.push(held(view.rows), view.rows[0].n, view.atEnd);
      while (!view.atEnd) { await view.newer(); if (view.rows.length > 20_000) return "too many"; }
      seen.push(held(view.rows) > 10_000, view.rows.at(-1).n, view.atStart);
      await view.older();
      return [...seen, held(view.rows) > 10_000];
    """)
    assert found == [500, 20_000, 1, False, True, 9_000, False, True]


def test_a_log_that_is_off_is_neither_shown_nor_asked_for(run):
    found = run("""
      await view.tail(600);
      await view.switchOff(["2.2"]);
      const gone = view.rows.some((row) => row.source === "2.2");
      await view.older();
      const still = view.rows.some((row) => row.source === "2.2"), whole = held(view.rows);
      await view.switchOn(["2.2"], 600);
      return [gone, still, whole, held(view.rows), view.rows.filter((row) => row.source === "2.2").length];
    """)
    assert found == [False, False, 1400, 600, 200]


def test_lines_that_come_late_go_between_but_never_before_their_own_log(run):
    found = run("""
      const row = (source, key, n) => ({ source, key, n });
      const older = [row("a", 10, 1), row("b", 20, 1), row("a", 30, 2)];
      const named = (rows) => rows.map(({ source, n }) => source + n).join(" ");
      return [
        named(woven(older, [row("c", 15, 1), row("c", 25, 2)])),
        named(woven(older, [row("a", 5, 3), row("a", 40, 4)])),
        named(woven([], [row("a", 1, 1)])), named(woven(older, [])),
      ];
    """)
    assert found == ["a1 c1 b1 c2 a2", "a1 b1 a2 a3 a4", "a1", "a1 b1 a2"]


def test_what_is_redrawn_or_goes_on_belongs_to_its_own_log(run):
    found = run("""
      const lines = [
        ["a", "e1-1", 1, 10, "10\\tp\\t10%"], ["b", "e2-1", 1, 11, "11\\to\\tlong"],
        ["a", "e1-1", 2, 12, "12\\tp\\t20%"],
        ["b", "e2-1", 2, 13, "13\\t+\\t and on"], ["a", "e1-1", 3, 14, "14\\to\\tdone"],
        ["b", "e2-1", 3, 15, '15\\tv\\t{"e":"step","n":1,"title":["装","Install"],"argv":[]}'],
        ["b", "e2-1", 4, 16, '16\\tv\\t{"e":"step_end","n":1,"state":"failed","exit":3,"took_s":1}'],
        ["b", "e2-1", 5, 17, '17\\tv\\t{"e":"step_end","n":1,"state":"succeeded","exit":0,"took_s":1}'],
        ["b", "e2-1", 6, 0, "no record"],
      ];
      const answer = { sources: [], lines, total: 9, before: "", after: "" };
      window.fetch = async () => ({ ok: true, json: async () => answer });
      await view.tail(9);
      return view.rows.map((row) => `${row.source} ${row.type} ${row.text} ${row.level}`.trim());
    """)
    assert found == [
        "b line long and on",
        "a line done",
        "b note 1  Install",
        "b note 1  Failed · exit code 3 error",
        "b line no record",
    ]
