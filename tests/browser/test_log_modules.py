"""The small modules of the log viewer, run in the browser that uses them."""

import pytest

from tests.browser.conftest import Pages


@pytest.fixture(scope="module")
def module(console, chromium):
    opened = Pages(console, chromium)
    page = opened.open("/jobs/")

    def run(name, code, *given):
        return page.evaluate(f"async (given) => {{ const m = await import('/static/js/{name}'); {code} }}", list(given))

    yield run
    opened.close()
    assert opened.complaints == []


def painted(module, text):
    code = "const node = document.createElement('pre'); m.paint(node, given[0]); return node.innerHTML"
    return module("log/ansi.js", code, text)


def test_sixteen_colours_become_classes(module):
    assert painted(module, "a \x1b[1;31mred\x1b[0m b") == 'a <span class="ansi-fg-1 ansi-bold">red</span> b'
    assert painted(module, "\x1b[97;44mx\x1b[39my") == (
        '<span class="ansi-fg-15 ansi-bg-4">x</span><span class="ansi-bg-4">y</span>'
    )


def test_other_colours_are_set_without_markup(module):
    assert "--ansi-fg: rgb(255 135 0)" in painted(module, "\x1b[38;5;208mx")
    assert "--ansi-fg: rgb(1 2 3)" in painted(module, "\x1b[38;2;1;2;3mx")
    assert "rgb(8 8 8)" in painted(module, "\x1b[38;5;232mx")


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b[2K\x1b[1Aup", "up"),
        ("\x1b[38;2;300;-1mx", "x"),
        ("\x1b[38;5m\x1b[48;2;1mx", "x"),
        ("\x1b[999999999999;;;mx\x1b", "x"),
        ("a\x00b\x07c\x7f", "a␀b␇c␡"),
        ("safe\u202etxt.exe", "safe⟨202E⟩txt.exe"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
    ],
)
def test_what_could_harm_is_dropped_or_shown(module, text, shown):
    found = painted(module, text)
    assert shown in found
    assert "<script" not in found and "\x1b" not in found and "evil" not in found


def rows(module, *records, more=""):
    code = f"""const r = new m.Rows(); for (const one of m.parse(given[0], 1)) r.push(one); {more}
    return r.list.map((row) => [row.n, row.type, row.text, row.step])"""
    return module("log/records.js", code, "\n".join(f"1764500000000\t{kind}\t{text}" for kind, text in records))


def test_progress_is_one_row_until_its_final_text(module):
    assert rows(module, ("p", "1"), ("p", "2"), ("p", "3")) == [[3, "progress", "3", None]]
    assert rows(module, ("p", "1"), ("p", "2"), ("o", "done"), ("o", "x")) == [
        [3, "line", "done", None],
        [4, "line", "x", None],
    ]


def test_cut_lines_are_joined_and_lost_ones_marked(module):
    assert rows(module, ("o", "a"), ("+", "b"), ("+", "c"), ("g", "7")) == [
        [1, "line", "abc", None],
        [4, "gap", "7", None],
    ]


def test_steps_own_the_rows_below_them(module):
    step = '{"e": "step", "n": %d, "of": 2, "title": ["一", "One"], "argv": []}'
    end = '{"e": "step_end", "n": 1, "state": "failed", "exit": 3, "took_s": 1}'
    found = rows(module, ("s", "x"), ("v", step % 1), ("o", "a"), ("v", end), ("v", step % 2), ("o", "b"))
    expected = [
        [1, "line", "x", None], [2, "step", "One", 1], [3, "line", "a", 1], [5, "step", "One", 2], [6, "line", "b", 2],
    ]  # fmt: skip
    assert found == expected


def test_an_item_that_is_printed_and_reported_is_one_row_whichever_comes_first(module):
    item = '{"e": "item", "key": "k", "title": ["内核", "Kernel"], "verdict": "ok", "found": "5.10", "wanted": "x"}'
    printed = ("o", "[ok] 内核 / Kernel  5.10  (x)")
    assert [row[:2] for row in rows(module, printed, ("v", item))] == [[1, "item"]]
    assert [row[:2] for row in rows(module, ("v", item), printed)] == [[1, "item"]]
    other = ("o", "[ok] 内存 / Memory  5.10  (x)")
    assert [row[:2] for row in rows(module, other, ("v", item))] == [[1, "line"], [2, "item"]]


def test_older_lines_join_at_the_seam(module):
    older = "1764500000000\\to\\tlong \\n1764500000000\\tp\\t1 %"
    assert rows(module, ("+", "line"), more=f"r.prepend(m.parse('{older[: older.index(chr(92) + 'n')]}', 0));") == [
        [0, "line", "long line", None]
    ]
    assert [row[2] for row in rows(module, ("o", "100 %"), more=f"r.prepend(m.parse('{older}', -1));")] == [
        "long ",
        "100 %",
    ]


@pytest.mark.parametrize(
    "event",
    ["{", "null", "[]", '"x"', "{}", '{"e": "item"}', '{"e": "step"}', '{"e": "step_end", "n": 4}', '{"e": "ended"}',
     '{"e": "item", "title": [1], "verdict": {}}', '{"e": "started", "pid": []}', '{"e": "cancelling", "rung": "x"}'],
)  # fmt: skip
def test_events_that_are_none_break_nothing(module, event):
    code = """const r = new m.Rows(); m.parse(given[0], 1).forEach((one) => r.push(one));
    const { draw, words } = await import('/static/js/log/row.js');
    return r.list.map((row) => draw(row, { times: "off", folded: new Set() }).textContent + words(row)).length"""
    assert module("log/records.js", code, f"1764500000000\tv\t{event}") <= 1


def test_what_is_told_to_the_console_is_no_row(module):
    told = '{"e":"told","told":"artifact","data":{"path":"/x"}}'
    assert rows(module, ("o", "before"), ("v", told), ("o", "after")) == [
        [1, "line", "before", None],
        [3, "line", "after", None],
    ]


def test_times_and_durations_read_as_on_the_server(module):
    code = "return [0.42, 9.96, 59.6, 140, 3599.7, 11100, null].map((s) => m.took(s))"
    assert module("times.js", code) == ["0.4 s", "10 s", "1 min 0 s", "2 min 20 s", "1 h 0 min", "3 h 5 min", "—"]
    code = "return ['relative', 'local', 'utc', 'off'].map((way) => m.stamp(1764500000123, way, 1764499937000))"
    assert module("times.js", code) == ["+1:03.123", "18:53:20.123 +08:00", "10:53:20.123Z", ""]


def test_lines_of_the_address(module):
    code = "return given.map((hash) => m.chosen(hash))"
    assert module("log/choice.js", code, "#L93", "#L97-L93", "#L5-7", "#L", "#L1x", "") == [
        {"from": 93, "to": 93}, {"from": 93, "to": 97}, {"from": 5, "to": 7}, None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"e": "waiting_reboot", "within_s": 1800, "by_hand": False},
         "Waits for the server to restart, at most 30 min 0 s"),
        ({"e": "waiting_reboot", "within_s": 60, "by_hand": True},
         "Waits until somebody restarts the server, at most 1 min 0 s"),
        ({"e": "rebooted", "n": 2, "took_s": 652.2}, "The server has restarted, after 10 min 52 s; the job goes on"),
        ({"e": "rebooted", "took_s": "<b>"}, "The server has restarted, after —; the job goes on"),
    ],
)  # fmt: skip
def test_a_restart_reads_as_a_sentence(module, event, words):
    assert module("log/row.js", "return m.noteText({ event: given[0] })", event) == words


def test_what_a_program_tells_the_console_is_no_line_of_the_log(module):
    step = ("v", '{"e":"step","n":1,"of":1,"title":["Look","Look"],"argv":[]}')
    told = ("v", '{"e":"told","told":"artifact","data":{"path":"/data/m"}}')
    assert rows(module, step, told, ("o", "one model")) == [[1, "step", "Look", 1], [3, "line", "one model", 1]]


def test_the_connection_of_a_log_is_told_in_words(module):
    code = "return [...given.map((state) => m.connectionText(state, false)), m.connectionText(given[0], true)]"
    stalled = {"state": "stalled", "since": 1764500000000}
    found = module("log/chip.js", code, {"state": "live", "since": 1}, {"state": "polling"}, stalled, {"state": ""})
    assert found == ["live", "polling", "stalled since 18:53:20", "", "complete"]


HITS = """
const answers = given[0], asked = [];
const remote = { ask: async (name, query) => { asked.push(query); return answers.shift(); } };
const hits = new m.Hits({ q: "x" }, remote);
await hits.scan(() => {});
"""


def part(to, lines, *, count=None, total=300):
    return {"hits": [{"n": n} for n in lines], "scanned_to": to, "total": total, "count": count or len(lines),
            "complete": to >= total}  # fmt: skip


def test_hits_of_a_whole_log_are_counted_in_parts_and_walked_round(module):
    answers = [part(100, [3]), part(200, []), part(300, [250, 260])]
    code = (
        HITS
        + """const steps = [];
    for (const [line, by] of [[0, 1], [3, 1], [260, 1], [3, -1]]) steps.push(await hits.step(line, by));
    return [hits.count, steps, [3, 250, 260, 9].map((n) => hits.place(n)), asked.map((one) => one.after)]"""
    )
    assert module("log/hits.js", code, answers) == [3, [3, 250, 3, 260], [1, 2, 3, None], [0, 100, 200]]


def test_a_hit_that_was_only_counted_is_asked_for(module):
    answers = [part(300, [3], count=40), part(200, []), part(201, [201]), part(250, [250])]
    code = HITS + "return [hits.count, await hits.step(150, 1), hits.place(201), await hits.step(270, -1), asked]"
    count, after, place, before, asked = module("log/hits.js", code, answers)
    assert (count, after, place, before) == (40, 201, None, 250)
    assert [one.get("after", one.get("before")) for one in asked] == [0, 150, 200, 270]


def test_a_refusal_of_the_console_is_told_apart_from_its_absence(module):
    code = """const words = JSON.stringify({ error: { what: "It is bad.", do: "Mend it." } });
    const before = window.fetch, found = [];
    for (const [status, body] of [[200, "{}"], [422, words], [404, "{}"], [500, words], [200, "<p>"]]) {
      window.fetch = async () => new Response(body, { status });
      const asked = new m.Remote({ find: "/f" }, () => "a1").ask("find");
      found.push(await asked.then((json) => json, (error) => [error.constructor.name, error.message]));
    }
    window.fetch = before;
    return found"""
    away = ["Away", "find"]
    assert module("log/remote.js", code) == [{}, ["Refused", "It is bad. Mend it."], away, away, away]
