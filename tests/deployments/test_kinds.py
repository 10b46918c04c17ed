import dataclasses
import json

import pytest

from deployments import kinds
from deployments.steps import Text


@pytest.mark.parametrize("name", kinds.names())
def test_every_kind_has_what_pages_agents_and_api_ask_for(name):
    module = kinds.load(name)
    assert isinstance(module.TITLE, Text) and dataclasses.is_dataclass(module.Params)
    assert callable(module.locks) and callable(module.steps) and callable(module.undo)
    described = kinds.describe(name)
    json.dumps(described)
    assert all(len(field["label"]) == 2 for field in described["params"])


@pytest.mark.parametrize("name", ["", "check_probes", "os", "..agent.worker", "__init__", "check.py", "no/such"])
def test_nothing_else_is_a_kind(name):
    assert name not in kinds.names()
    with pytest.raises(KeyError):
        kinds.load(name)
