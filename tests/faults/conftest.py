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


class Stage:
    """The scene of all tests, and a new one after a test that failed: what it broke is not the next one's."""

    def __init__(self, make_folder, tally):
        self.make_folder, self.tally = make_folder, tally
        self.set_up = None

    def scene(self):
        if self.set_up is None:
            self.set_up = Scene(self.make_folder("faults"), hold_s=HOLD_S, tally=self.tally)
        return self.set_up

    def give_up(self, why):
        """Keep what there is to see of a failure, in the folder and in the report."""
        words = self.set_up.last_words()
        (self.set_up.folder / "failure.txt").write_text("\n".join([why, *words]))
        print("\n".join(words))
        self.strike_set()

    def strike_set(self):
        if self.set_up is not None:
            self.set_up, ended = None, self.set_up
            ended.close()


@pytest.fixture(scope="package")
def stage(tmp_path_factory, faults_tally):
    made = Stage(tmp_path_factory.mktemp, faults_tally)
    yield made
    made.strike_set()


@pytest.fixture
def scene(stage, faults_seed, request):
    """The scene, whole, with dice that depend on the seed and on the test alone."""
    found = stage.scene()
    print(f"--faults-seed {faults_seed}")
    found.hold_s, found.random = HOLD_S, random.Random(f"{faults_seed} {request.node.name}")
    try:
        found.settle()
    except AssertionError as error:
        stage.give_up(str(error))
        raise
    yield found
    if getattr(request.node, "failed_in_call", ""):  # a test that was interrupted has none
        stage.give_up(request.node.failed_in_call)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.failed_in_call = report.longreprtext if report.failed else ""
    return report


def pytest_terminal_summary(terminalreporter, config):
    tally = getattr(config, "faults_tally", None)
    if tally:
        for line in tally.words():
            terminalreporter.write_line(line)
