"""A gateway's throughput beside that of its engine alone, in the same run: tokens a second, and time to the first.

The engine pretends, with the latency of a real one: it answers in a stream, one word each 20 ms. The
gateway is the real nginx and the real vllm-router. At least 95 % is asked for. Then one of two engines is killed: how
long until the gateway sends it nothing, of the 5 s that are asked for.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_gateway`.
"""

import http.client
import json
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

CLIENTS, MEASURED_S, WORDS, PAUSE_S = 16, 5.0, 50, 0.02
WANTED = 0.95
GONE_S = 5.0


def run(port: int, key: str, seconds: float = MEASURED_S) -> tuple[float, float]:
    """(words a second, median ms until the first) with CLIENTS streaming clients."""
    ended, words, firsts = time.monotonic() + seconds, [0] * CLIENTS, []
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": WORDS, "stream": True}
    body = json.dumps(asked)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def client(n: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while time.monotonic() < ended:
            began = time.monotonic()
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer = connection.getresponse()
            first = answer.readline()
            firsts.append(time.monotonic() - began)
            text = first + answer.read()
            if answer.status != 200 or b"[DONE]" not in text:
                raise RuntimeError(f"{answer.status} {text[:100]!r}")
            words[n] += text.count(b'"content"')

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(words) / (time.monotonic() - began), 1000 * median(firsts)


def gone_s(bench: Any) -> float:
    """Seconds from the death of the second engine until the router leaves it out."""
    from deployments.agent.gateways import balancer
    from tests.deployments.gateway_bench import Engine
    from tests.waiting import until

    second = Engine(pause=PAUSE_S).start()
    bench.engines.append(second)
    bench.put()
    port, url = bench.spec["router_port"], f"http://127.0.0.1:{second.port}"
    try:
        until(lambda: balancer.engines(port).get(url, {}).get("healthy"), timeout=20)
    finally:
        died = time.monotonic()
        second.kill()
    until(lambda: not balancer.engines(port)[url]["healthy"], timeout=30)
    return time.monotonic() - died


def main() -> None:
    from tests.deployments.gateway_bench import ENGINE_KEY, Bench, Engine, is_there

    if not is_there():
        print("gateway          NOT MEASURED: no nginx with njs, or no vllm-router (make router)")
        return
    engine = Engine(pause=PAUSE_S).start()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), [engine])
        try:
            bench.spec["policy"] = "cache_aware"
            bench.start()
            run(bench.port, "sk-one", 1.0)
            parts = [(run(engine.port, ENGINE_KEY), run(bench.port, "sk-one")) for _ in range(2)]
            away = gone_s(bench)
        finally:
            bench.close()
            engine.kill()
    direct, gateway = (max(part[n][0] for part in parts) for n in (0, 1))
    firsts = [median(part[n][1] for part in parts) for n in (0, 1)]
    share = gateway / direct
    word = "" if share >= WANTED else f"  BELOW {WANTED:.0%}"
    print(
        f"gateway          {CLIENTS} streams: engine {direct:,.0f} words/s, through the gateway {gateway:,.0f} "
        f"({share:.1%}){word}; first word {firsts[0]:.0f} ms and {firsts[1]:.0f} ms"
    )
    late = "" if away <= GONE_S else f"  ABOVE {GONE_S:.0f} s"
    print(f"dead engine      left out after {away:.1f} s, {away / GONE_S:.0%} of {GONE_S:.0f} s{late}")


if __name__ == "__main__":
    main()
