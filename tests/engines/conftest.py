"""Tests with real engines, whose packages come from an index: gigabytes and minutes, so only `make test-engines` runs
them. `--engines-index` names another index than the public one."""

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.deployments.joining import Host
from tests.engines.operator import Operator, joined
from tests.waiting import until
from tests.whole import Whole

HERE = Path(__file__).parent


class Installed(NamedTuple):
    """`plan` and `job` as REST tells them, `took_s` from asking to its end."""

    root: Path
    plan: dict
    job: dict
    took_s: float


# vLLM starts several times in these: minutes that CI does not have.
LONG = (
    "test_evaluate.py", "test_sample_model.py", "test_serve_engine.py", "test_deployment_whole.py", "test_two_nodes.py",
)  # fmt: skip


def pytest_collection_modifyitems(config, items):
    for item in items:
        if HERE not in item.path.parents:
            continue
        if not config.getoption("--engines"):
            item.add_marker(pytest.mark.skip(reason="fetches gigabytes: make test-engines"))
        elif config.getoption("--engines-brief") and item.path.name in LONG:
            item.add_marker(pytest.mark.skip(reason="long: make test-engines without --engines-brief"))


@pytest.fixture(scope="session")
def console(tmp_path_factory, request):
    index = request.config.getoption("--engines-index")
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0, **({"PACKAGE_INDEX": index} if index else {}))
    yield whole
    whole.stop()


@pytest.fixture(scope="session")
def host():
    made = Host()
    yield made
    made.close()


@pytest.fixture(scope="session")
def operator(console):
    return Operator(console)


@pytest.fixture(scope="session")
def installed(operator, host):
    """The CPU stack as a new user gets it, on the host: by the page's job `install`, from the index."""
    root = joined(operator, host)
    plan = until(lambda: p if not (p := operator.plan())["refusals"] else None, 120, 0.5)
    began = time.monotonic()
    job = operator.ended("install")
    return Installed(root, plan, job, time.monotonic() - began)


@pytest.fixture(scope="session")
def cpu_stack(request):
    """The folder of an installed CPU stack: one that lies there (--engines-stack), or that of `installed`."""
    if there := request.config.getoption("--engines-stack"):
        return Path(there).resolve()
    made = request.getfixturevalue("installed")
    assert made.job["state"] == "succeeded", made.job
    return (made.root / "current").resolve()
