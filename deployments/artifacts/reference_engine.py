"""Transformers of msModelSlim's environment as the engine of an evaluation, on the CPU: for machines without NPU, where
vLLM cannot read what msModelSlim writes. It starts `inside/answer_reference.py`."""

import json
from collections.abc import Sequence
from pathlib import Path

from deployments.artifacts.asked import Ask, CannotAnswer
from deployments.artifacts.engine_failures import ended_early
from deployments.artifacts.processes import environment, running
from deployments.artifacts.prompts import Prompt
from deployments.steps import Text

INSIDE = Path(__file__).with_name("inside") / "answer_reference.py"


def answer_all(ask: Ask, role: str, prompts: Sequence[Prompt], out: Path) -> None:
    """Write the answers of one model to `out`. Raises CannotAnswer."""
    wanted = {
        "model": str(ask.model(role)), "prompts": [one.as_json() for one in prompts], "max_tokens": ask.max_tokens,
        "max_length": ask.max_length, "remote_code": ask.remote_code, "out": str(out),
    }  # fmt: skip
    path = out.with_suffix(".ask.json")
    path.write_text(json.dumps(wanted, ensure_ascii=False), encoding="utf-8")
    env = {
        **environment(),
        "OMP_WAIT_POLICY": "PASSIVE",  # as in modelslim.py
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with running([str(ask.tools_python), str(INSIDE), str(path)], env) as program:
        code = program.process.wait()
        if code:
            raise CannotAnswer(_why(out) or ended_early(code, program.output))


def _why(out: Path) -> Text | None:
    """What it could not do, in its own words."""
    try:
        found = json.loads(out.read_text(encoding="utf-8").splitlines()[-1])
        zh, en = found["cannot"]
        return Text(str(zh), str(en))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
