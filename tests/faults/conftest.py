"""One scene for all fault tests, and what they did, in numbers, at the end.

`make test` brings each fault about once. `--faults-runs N` adds N runs of random faults at random moments, which hold
on for 20 s; `--faults-seed S` repeats a run: the seed of each is printed.
"""

import random
import secrets

import pytest

from tests.faults.scene import Scene, Tally

HOLD_S = 3.0
LONG_HOLD_S = 20.0


@pytest.fixture(scope="session")
def faults_seed(request):
    return request.config.getoption("--faults-seed") or secrets.randbelow(10**6)


@pytest.fixture(scope="session")
def faults_tally(request):
    request.config.faults_tally = Tally()
    return request.config.faults_tally


@pytest.fixture(scope="session")
def scene(request, tmp_path_factory, faults_seed, faults_tally):
    made = Scene(tmp_path_factory.mktemp("faults"), seed=faults_seed, hold_s=HOLD_S, tally=faults_tally)
    yield made
    made.close()


@pytest.fixture
def seeded(scene, faults_seed, request):
    """The scene, whose dice depend on the seed and on the test alone."""
    print(f"--faults-seed {faults_seed}")
    scene.random = random.Random(f"{faults_seed} {request.node.name}")
    scene.settle()
    return scene


def pytest_terminal_summary(terminalreporter, config):
    tally = getattr(config, "faults_tally", None)
    if tally:
        for line in tally.words():
            terminalreporter.write_line(line)
