"""The whole console as `make up` starts it, seen from a real Chromium: start, footprint, and how late the page is."""

import contextlib
import tempfile
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tests.whole import Whole

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip

# Notes, in the frame after a message arrived, how old its sample or its log lines are (one machine, so one clock).
WATCH = """
window.late = {sample: [], log: []};
const Real = window.WebSocket;
window.WebSocket = class extends Real {
  constructor(...a) { super(...a); this.addEventListener("message", (event) => {
    if (typeof event.data !== "string") return;
    const told = JSON.parse(event.data);
    requestAnimationFrame(() => setTimeout(() => {
      if (told.type === "sample" && told.data.t) late.sample.push(Date.now() - told.data.t * 1000);
      if (told.type !== "log") return;
      for (const line of told.data.text.split("\\n")) late.log.push(Date.now() - Number(line.split("\\t")[0]));
    }));
  }); }
};
"""


def share(values: list[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))] if values else float("nan")


def spread(values: list[float]) -> str:
    return f"p50 {share(values, 50):.0f} ms, p99 {share(values, 99):.0f} ms of {len(values)}"


def processes(var: Path) -> list[int]:
    """The processes of this console: those whose environment or command line names its folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
        except OSError:
            continue
        if str(var).encode() in text:
            found.append(int(place.name))
    return found


def pss_mb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total / 1024


def cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / 100


@contextmanager
def page_of(whole: Whole) -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        context = browser.new_context(viewport={"width": 1440, "height": 2200}, base_url=whole.url)
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto("/login/")
        page.fill("[name=username]", "admin")
        page.fill("[name=password]", whole.password)
        page.press("[name=password]", "Enter")
        page.wait_for_selector("#fleet")
        yield page
        browser.close()


def footprint(whole: Whole, seconds: float) -> None:
    pids = processes(whole.folder / "var")
    before, started = cpu_s(pids), time.monotonic()
    time.sleep(seconds)
    used = (cpu_s(pids) - before) / (time.monotonic() - started)
    print(
        f"whole demo of 20 servers: {pss_mb(pids):.0f} MB PSS in {len(pids)} processes (budget 600), "
        f"{used / 2:.0%} of two cores (budget 25 %)"
    )


def agent(whole: Whole, seconds: float) -> None:
    """The agent of this machine alone: a line of 20 s, no job."""
    pids = [
        pid
        for pid in processes(whole.folder / "var")
        if b"agent/config.json" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    before, started = cpu_s(pids), time.monotonic()
    time.sleep(seconds)
    used = (cpu_s(pids) - before) / (time.monotonic() - started)
    print(
        f"agent on an idle server: {used:.1%} of one core (budget 1 %), {pss_mb(pids):.0f} MB PSS "
        f"in {len(pids)} processes (budget 80)"
    )


def lateness(whole: Whole, page: object, token: str) -> None:
    page.goto("/servers/kp-01/")
    page.wait_for_timeout(20_000)
    print(
        "sample taken → shown in the browser, beside the 1 s clock: "
        f"{spread(page.evaluate('late.sample.slice(1)'))} (budget p99 200)"
    )
    own = own_server(whole, token)
    lines: list[float] = []
    for _ in range(8):
        job = whole.call("/jobs", token, {"kind": "check", "server": own})["id"]
        page.goto(f"/jobs/{job}/")
        page.wait_for_timeout(4500)
        lines += page.evaluate("late.log.slice(5)")
    print(f"log line written → shown in the browser: {spread(lines)} (budget p50 100, p99 300)")


def own_server(whole: Whole, token: str) -> str:
    return next(s["name"] for s in whole.call("/servers", token)["servers"] if not s["simulated"])


def first_steps(whole: Whole, token: str, calls: int) -> None:
    """Each check is cancelled once its first step runs, so that the agent is idle again."""
    own, starts = own_server(whole, token), []
    for _ in range(calls):
        began = time.time()
        job = whole.call("/jobs", token, {"kind": "check", "server": own})["id"]
        while not (steps := (whole.call(f"/jobs/{job}", token)["attempt"] or {}).get("steps")):
            time.sleep(0.1)
        starts.append((datetime.fromisoformat(steps[0]["started_at"]).timestamp() - began) * 1000)
        with contextlib.suppress(urllib.error.HTTPError):  # it may have ended meanwhile
            whole.call(f"/jobs/{job}/cancel", token, {})
        while whole.call(f"/jobs/{job}", token)["state"] in ("queued", "running"):
            time.sleep(0.1)
    print(f"REST request → first step running: {spread(starts)} (budget p99 250)")


def batch(whole: Whole, token: str, servers: int) -> None:
    """How long a batch takes to be accepted, and the slowest page beside it."""
    names = [s["name"] for s in whole.call("/servers", token)["servers"] if s["simulated"]][:servers]
    slowest, done = [0.0], threading.Event()

    def look() -> None:
        while not done.is_set():
            began = time.monotonic()
            whole.call("/jobs?limit=20", token)
            slowest[0] = max(slowest[0], time.monotonic() - began)

    looker = threading.Thread(target=look)
    looker.start()
    began = time.monotonic()
    asked = {"select": {"names": names, "fleet": "simulated"}, "canary": 0, "wave": len(names), "spread": False}
    whole.call("/batches", token, {"kind": "check", **asked})
    took = time.monotonic() - began
    time.sleep(3)
    done.set()
    looker.join()
    print(
        f"batch of {len(names)} on the demo fleet: accepted in {took:.2f} s (budget 1), "
        f"slowest list of jobs then and in the 3 s after {slowest[0] * 1000:.0f} ms"
    )


def ingest(whole: Whole, servers: int, seconds: float) -> None:
    pids = [
        pid
        for pid in processes(whole.folder / "var")
        if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"manage.py\0ingest\0")
    ]
    before, started = cpu_s(pids), time.monotonic()
    time.sleep(seconds)
    share_of_core = (cpu_s(pids) - before) / (time.monotonic() - started)
    print(
        f"ingest with samples and beats of {servers:,} servers at 1 Hz: {share_of_core:.0%} of one core (budget 100 %)"
    )


def big_fleet(folder: Path) -> None:
    whole = Whole(folder, demo_servers=1000)
    try:
        time.sleep(25)  # every simulated server has told its first sample
        with page_of(whole) as page:
            taken = []
            for _ in range(5):
                page.goto("/")
                page.wait_for_selector("body[data-cells-shown-ms]")
                timing = page.evaluate("JSON.parse(JSON.stringify(performance.getEntriesByType('navigation')[0]))")
                paint = page.evaluate("Number(document.body.dataset.cellsShownMs)")
                taken.append(
                    (
                        timing["responseStart"] - timing["requestStart"],
                        timing["transferSize"],
                        timing["decodedBodySize"],
                        paint,
                        timing["responseEnd"],
                    )
                )
                page.wait_for_timeout(500)
            first, wire, decoded, cells, _ = (share([row[k] for row in taken], 50) for k in range(5))
            cdp = page.context.new_cdp_session(page)
            received = []
            cdp.on(
                "Network.webSocketFrameReceived", lambda event: received.append(len(event["response"]["payloadData"]))
            )
            cdp.send("Network.enable")
            page.wait_for_timeout(15_000)
        ingest(whole, 1000, 10)
        batch(whole, whole.token(), 200)
        time.sleep(20)
        pids = processes(folder / "var")
        before = cpu_s(pids)
        time.sleep(10)
        print(
            f"fleet page, 1,000 servers × 8: first byte {first:.0f} ms (budget 200), "
            f"{wire / 1024:,.0f} kB on the wire (budget 1,024; {decoded / 1024:,.0f} kB unpacked), "
            f"all cells {cells:.0f} ms after the script began (budget 1,000), "
            f"then {sum(received) / 15 / 1024:.1f} kB/s (budget 5)"
        )
        print(
            f"console with 1,000 simulated servers: {(cpu_s(pids) - before) / 20:.0%} of two cores, "
            f"{pss_mb(pids):.0f} MB PSS"
        )
    finally:
        whole.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        small, big = Path(name) / "small", Path(name) / "big"
        small.mkdir()
        big.mkdir()
        whole = Whole(small, demo_servers=20)
        try:
            time.sleep(5)
            footprint(whole, 20)
            agent(whole, 20)
            token = whole.token()
            with page_of(whole) as page:
                lateness(whole, page, token)
            first_steps(whole, token, 40)
            whole.stop()
            print(f"second start: ready after {whole.start():.1f} s (budget 5)")
        finally:
            whole.stop()
        big_fleet(big)


if __name__ == "__main__":
    main()
