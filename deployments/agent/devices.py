"""From the bus ids a job names to the device indexes a program takes, by the newest reading of this server."""

import json
from pathlib import Path
from typing import Any

from deployments.agent.spool import write_whole
from deployments.steps import Text

LAST = "last_sample.json"


class NoSuchNpu(Exception):
    """A bus id that the newest reading does not list; `text` says what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def remember(state_dir: Path, sample: dict[str, Any]) -> None:
    """Keep the NPUs of the newest sample for runners that start; the order printed is the device index."""
    npus = [{"bus_id": npu.get("bus_id"), "chip": npu.get("chip")} for npu in sample.get("npus", [])]
    data, path = json.dumps(npus).encode(), state_dir / LAST
    if not path.exists() or path.read_bytes() != data:
        write_whole(path, data)


def visible(state_dir: Path, bus_ids: list[str]) -> str:
    """The value of ASCEND_RT_VISIBLE_DEVICES; `0000:81:00.0/1` names one chip of a bus id. Raises NoSuchNpu."""
    try:
        npus = json.loads((state_dir / LAST).read_bytes())
    except (OSError, ValueError):
        npus = []
    found: list[int] = []
    for bus_id in bus_ids:
        matches = [index for index, npu in enumerate(npus) if bus_id in _names(npu)]
        if not matches:
            raise NoSuchNpu(
                Text(
                    f"npu-smi 现在没有列出 NPU {bus_id}。请查看服务器页面上的 NPU，再用存在的 NPU 新建作业。",
                    f"npu-smi does not list NPU {bus_id} now. Look at the NPUs on the server's page, "
                    "then start the job on those that are there.",
                )
            )
        found += matches
    return ",".join(map(str, sorted(set(found))))


def _names(npu: dict[str, Any]) -> tuple[str, str]:
    return f"{npu.get('bus_id')}", f"{npu.get('bus_id')}/{npu.get('chip')}"
