"""Each fault of the catalogue at some moment, and, with --faults-runs, as many more as there is time for."""

import random
import time

import pytest

from tests.faults import checks
from tests.faults.catalogue import FAULTS, LONG, MOMENTS, CannotHappen
from tests.faults.conftest import LONG_HOLD_S

pytestmark = pytest.mark.slow


def run(scene, fault, moment):
    """One run: jobs, the fault, and everything that must be true afterwards."""
    try:
        jobs = MOMENTS[moment](scene, FAULTS[fault])
    except CannotHappen as reason:
        pytest.skip(str(reason))
    mended = time.monotonic()
    checks.check_all(scene, jobs)
    scene.tally.note(fault, moment, time.monotonic() - mended)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_costs_no_line_and_no_job(seeded, fault):
    run(seeded, fault, seeded.random.choice(sorted(MOMENTS)))


def test_random_faults_at_random_moments(scene, faults_seed, request):
    runs = request.config.getoption("--faults-runs")
    if not runs:
        pytest.skip("asked for by --faults-runs N")
    dice = random.Random(faults_seed)
    for n in range(runs):
        fault, moment = dice.choice(sorted(FAULTS)), dice.choice(sorted(MOMENTS))
        scene.hold_s = LONG_HOLD_S if dice.random() < 0.2 and fault not in LONG else dice.uniform(0.5, 5)
        scene.random = random.Random(f"{faults_seed} {n}")
        print(f"--faults-seed {faults_seed}, run {n}: {fault} {moment}, {scene.hold_s:.1f} s", flush=True)
        scene.settle()
        run(scene, fault, moment)
