"""Simulated servers give to a support bundle what their tools print, and say that it is acted out."""

import base64
import io
import json
import zipfile

import pytest

from deployments.agent.support import INDEX
from deployments.demo import fleet
from deployments.kinds.support_bundle import SOURCES
from tests.deployments.acted import Acted, at_once  # noqa: F401
from tests.deployments.test_acted_models import told

pytestmark = pytest.mark.usefixtures("at_once")


def test_a_simulated_server_gives_every_source(tmp_path):
    acted = Acted(fleet.server(0).name, tmp_path)
    log = acted.run("support_bundle", bundle=1, salt="s")
    parts = {one["source"]: zipfile.ZipFile(io.BytesIO(base64.b64decode(one["zip"])))
             for one in told(log, "support_part")}  # fmt: skip
    assert log.ended["state"] == "succeeded" and set(parts) == set(SOURCES)
    text = parts["readings"].read("npu-smi/info.txt").decode()
    assert text.startswith("simulated") and "NPU" in text and fleet.server(0).name not in text
    assert b"Chip Count" in parts["readings"].read("npu-smi/info_t_board_i_0.txt")
    missing = json.loads(parts["device"].read(INDEX))["missing"]
    assert missing[0]["why"][1] == "a simulated server has none"
