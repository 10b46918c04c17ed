"""Each fault of the catalogue at some moment, and, with --faults-runs, as many more as there is time for."""

import random
import time

import pytest

from tests.faults import checks
from tests.faults.catalogue import FAULTS, LONG, MOMENTS, MUCH_LIKE_ANOTHER, CannotHappen, together
from tests.faults.conftest import LONG_HOLD_S

pytestmark = pytest.mark.slow


def check_run(scene, faults, moment):
    """One run: jobs, the faults at once, and everything that must be true afterwards."""
    try:
        jobs = MOMENTS[moment](scene, together(*(FAULTS[fault] for fault in faults)))
    except CannotHappen as reason:
        pytest.skip(str(reason))
    mended = time.monotonic()
    checks.check_all(scene, jobs)
    scene.tally.note(faults, moment, time.monotonic() - mended)


def stops_for_long(seed):
    """Which stand still for 20 s this time, longer than any lease or time-out; all of them would take minutes."""
    return random.Random(f"{seed} stops").sample(sorted(one for one in FAULTS if one.startswith("stop ")), 3)


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - MUCH_LIKE_ANOTHER))
def test_a_fault_costs_no_line_and_no_job(scene, fault, faults_seed):
    if fault in stops_for_long(faults_seed):
        scene.hold_s = LONG_HOLD_S
    check_run(scene, [fault], scene.random.choice(sorted(MOMENTS)))


def pytest_generate_tests(metafunc):
    """As many runs as --faults-runs says."""
    if "n" in metafunc.fixturenames:
        metafunc.parametrize("n", range(metafunc.config.getoption("--faults-runs")))


def test_random_faults_cost_no_line_and_no_job(scene, faults_seed, n):
    dice = random.Random(f"{faults_seed} {n}")
    faults = dice.sample(sorted(FAULTS), dice.choice((1, 1, 2)))
    moment = dice.choice(sorted(MOMENTS))
    scene.hold_s = LONG_HOLD_S if dice.random() < 0.1 and not LONG & set(faults) else dice.uniform(0.2, 5)
    print(f"{moment}: {faults}, {scene.hold_s:.1f} s")
    check_run(scene, faults, moment)
