"""Tests with real engines, whose packages come from an index: gigabytes and minutes, so only `make test-engines` runs
them. `--engines-index` names another index than the public one."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--engines"):
        left = pytest.mark.skip(reason="fetches gigabytes: make test-engines")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(left)
