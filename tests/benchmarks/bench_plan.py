"""Plans for every model that is known, on NPUs of each kind: the slowest of them beside its budget, and beside one
counting of memory, of which a plan is made.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_plan`.
"""

import time
from collections.abc import Callable, Iterator

BUDGET_MS, REPEATS = 50, 5
CHIPS = (("A2", 65536), ("A3", 65536), ("310P", 49152))


def best_ms(call: Callable[[], object]) -> float:
    least = float("inf")
    for _run in range(REPEATS):
        before = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - before)
    return 1000 * least


def cases() -> Iterator[tuple[str, float, float]]:
    """(model and chip, ms of its plan, ms of one counting of memory)."""
    from deployments.artifacts.known import built_in
    from deployments.serving import planner, sizing
    from deployments.serving.planner import Wish
    from deployments.serving.spec import Unknown, from_known

    for row in built_in().rows.values():
        try:
            spec = from_known(row)
        except Unknown:
            continue
        for family, hbm_mb in CHIPS:
            wish = Wish(family, hbm_mb, 8, servers=8, concurrency=120)
            planned = best_ms(lambda spec=spec, wish=wish: planner.make(spec, wish))
            counted = best_ms(lambda spec=spec, mb=hbm_mb: sizing.memory(spec, mb, sizing.Engine()))
            yield f"{row.id} on {family}", planned, counted


def main() -> None:
    measured = list(cases())
    name, slowest, counted = max(measured, key=lambda one: one[1])
    word = "" if slowest <= BUDGET_MS else f"  ABOVE {BUDGET_MS} ms"
    print(
        f"plan             {len(measured)} plans; the slowest, {name}: {slowest:.1f} ms, {slowest / BUDGET_MS:.0%} of "
        f"{BUDGET_MS} ms{word}, {slowest / counted:.0f} times one counting of memory"
    )


if __name__ == "__main__":
    main()
