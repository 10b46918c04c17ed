"""The services of a whole log as its viewer asks them, answered by the browser: for a console that has none yet.

Where the page's own config names them, the console answers and this stays away.
"""

import json
import re
from urllib.parse import parse_qsl, urlsplit

PART = 900_000  # lines that one answer goes through
# Named in the config before the page's scripts read it, where it names none.
NAMED = """(() => {
  const parse = JSON.parse;
  JSON.parse = (text, ...more) => {
    const found = parse(text, ...more);
    if (typeof found?.lines !== "string" || found.find) return found;
    const named = { find: "find", filtered: "filtered", firstError: "first-error", facets: "facets" };
    for (const [name, last] of Object.entries(named)) found[name] = `/stand-in/${last}`;
    return found;
  };
})()"""


def serve(page, special, total):
    """`special` is {line: [kind, text]}: the only lines that anything is found in."""

    def service(route):
        url = urlsplit(route.request.url)
        status, found = _answer(url.path.rsplit("/", 1)[1], dict(parse_qsl(url.query)), special, total)
        route.fulfill(status=status, content_type="application/json", body=json.dumps(found))

    page.add_init_script(NAMED)
    page.route("**/stand-in/*", service)


def _answer(name, query, special, total):
    if name == "facets":
        return 200, {"levels": {"error": 2, "warning": 0}, "ranks": ["Worker_TP3", "rank0"]}
    after = int(query.get("after", 0))
    if name == "first-error":
        found = [n for n in sorted(special) if after < n <= after + PART and _is_error(special[n][1])]
        return 200, {"line": found[0] if found else None, "scanned_to": found[0] if found else min(total, after + PART)}
    try:
        test = _test(query)
    except re.error:
        return 422, {"error": {"code": "invalid", "what": "This expression cannot be read.", "do": "Mend it."}}
    if "before" in query:
        before = min(int(query["before"]), total + 1)
        low, high, end = max(1, before - PART), before - 1, 1
    else:
        low, high, end = (after + 1, min(total, after + PART), total) if "after" in query else (1, total, total)
    hits = [n for n in sorted(special) if low <= n <= high and test(special[n][1])]
    if name == "find":
        return 200, _found(hits, query, total, low if "before" in query else high, end in (low, high))
    text = "\n".join(f"1764500000000\t{special[n][0]}\t{special[n][1]}" for n in hits)
    to = high if "after" in query else low
    return 200, {"first": hits[0] if hits else 1, "n": len(hits), "total": total, "lines": hits, "text": text,
                 "scanned_to": to, "done": False}  # fmt: skip


def _found(hits, query, total, to, complete):
    n = int(query.get("n", 200))
    named = hits[-n:] if "before" in query else hits[:n]
    return {"hits": [{"n": line, "ms": 1} for line in named], "scanned_to": to, "total": total, "complete": complete,
            "count": len(hits)}  # fmt: skip


def _is_error(text):
    return "ERROR" in text or "Error: " in text


def _test(query):
    word = query.get("q", "")
    pattern = re.compile(word if "regex" in query else re.escape(word), 0 if "case" in query else re.IGNORECASE)
    level, rank = query.get("level", ""), query.get("rank", "")
    return lambda text: pattern.search(text) and (not level or _is_error(text)) and rank in text
