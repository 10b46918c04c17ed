"""Time to plan an installation: for one server, and for 1,000 servers of which no two are alike.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_stacks`. Beside it the plain limit of the same run: to
read as many facts from JSON.
"""

import json
import time

from deployments.stacks import installed, plan, verdict
from deployments.stacks.catalogue import built_in
from tests.deployments.stack_facts import CHIPS, facts

SERVERS = 1000
SUPPORTED = [family for family in CHIPS if built_in().families[family].supported]


def fleet() -> list[tuple[str, str]]:
    """(facts as JSON, chip): every tenth has nothing installed, and no two have the same driver."""
    made = []
    for n in range(SERVERS):
        family = SUPPORTED[n % len(SUPPORTED)]
        driver = None if n % 10 == 0 else f"25.{n % 6}.{n}"
        made.append(
            (json.dumps(facts(family, driver=driver, kernel=f"6.6.{n}", firmware="7.8.0.6.201")), CHIPS[family][0])
        )
    return made


def seconds(call: object, times: int = 1) -> float:
    """The best of some runs."""
    best = float("inf")
    for _run in range(times):
        before = time.perf_counter()
        call()  # type: ignore[operator]
        best = min(best, time.perf_counter() - before)
    return best


def main() -> None:
    known, servers = built_in(), fleet()
    text, chip = servers[0]

    def one() -> None:
        made = plan.make(installed.read(json.loads(text), chip, known), known.default, known)
        json.dumps(plan.as_json(made))

    def every() -> None:
        for told, name in servers:
            plan.make(installed.read(json.loads(told), name, known), known.default, known)

    def judged() -> None:
        verdict.of.cache_clear()
        for told, name in servers[:50]:
            has = installed.read(json.loads(told), name, known)
            for stack in known.stacks.values():
                verdict.of(has, stack, known)

    plain = seconds(lambda: [json.loads(told) for told, _chip in servers], 3)
    print(f"plan for one server: {seconds(one, 20) * 1e3:.2f} ms (budget 200)")
    print(f"plans for {SERVERS} servers: {seconds(every, 3):.2f} s (budget 5), reading their JSON alone {plain:.3f} s")
    print(f"verdicts of 50 unlike servers on {len(known.stacks)} stacks: {seconds(judged):.2f} s")


if __name__ == "__main__":
    main()
