"""The demo fleet's process: share of one core and memory, with 20 and with 1,000 servers at one sample a second each.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_demo`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = (20, 1000)
WARM_UP_S, MEASURED_S = 4.0, 10.0


def configs(count: int, url: str, folder: Path) -> list[dict[str, Any]]:
    from deployments.demo import fleet

    return [
        {"server_id": n, "name": row["name"], "redis_url": url, "prefix": f"h:{n}", "key": "5a" * 32}
        | {"state_dir": str(folder / row["name"]), "interval_s": 1.0, "simulated": True, "env": {}}
        for n, row in enumerate(fleet.enlist(count), 1)
    ]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def added(client: Any, count: int) -> int:
    """Entries ever added to the telemetry streams."""
    pipe = client.pipeline(transaction=False)
    for n in range(1, count + 1):
        pipe.xinfo_stream(f"h:{n}:telemetry")
    answers = pipe.execute(raise_on_error=False)
    return sum(answer["entries-added"] for answer in answers if isinstance(answer, dict))


def measure(count: int, url: str, client: Any, folder: Path) -> str:
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps({"redis_url": url, "servers": configs(count, url, folder)}))
    process = subprocess.Popen(
        [sys.executable, "-m", "deployments.demo", "--config", str(path)], stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(WARM_UP_S)
        cpu, sent, began = cpu_s(process.pid), added(client, count), time.monotonic()
        time.sleep(MEASURED_S)
        took = time.monotonic() - began
        share, rate = (cpu_s(process.pid) - cpu) / took, (added(client, count) - sent) / took
        return f"{share:.1%} of one core, {pss_mb(process.pid):.0f} MB PSS, {rate:,.0f} samples/s"
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"VAR_DIR": name, "LOG_LEVEL": "WARNING"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
        import django

        django.setup()
        from tests.conftest import Valkey

        valkey = Valkey(Path(name))
        try:
            for count in SIZES:
                valkey.client().flushall()
                told = measure(count, valkey.url, valkey.client(), Path(name) / f"demo-{count}")
                print(f"demo process, {count:,} servers: {told}")
        finally:
            valkey.kill()


if __name__ == "__main__":
    main()
