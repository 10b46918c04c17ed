import dataclasses
import json
import os
import subprocess
import sys

import pytest

from deployments import kinds
from deployments.steps import Text
from tests.conftest import ROOT


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


def test_every_process_knows_who_fills_in_a_kind_and_what_holds_a_campaign_back():
    """A batch of a campaign that some process advanced without its gate would run through all rings at once."""
    code = (
        "import django; django.setup()\n"
        "from deployments import kinds\n"
        "from deployments.services import batch_gates, filling\n"
        "print(sorted(batch_gates.GATES), sorted(filling.FILLERS),"
        " sorted(name for name in kinds.names() if hasattr(kinds.load(name), 'FILLED')))"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"}
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    named = (
        "benchmark convert download download_look drivers evaluate install model_delete quantize "
        "quantize_look quantizer reset restart rollback sample_model serve stop uninstall"
    )
    filled = str(named.split())
    assert told.stdout.strip() == f"['install'] {filled} {filled}"
