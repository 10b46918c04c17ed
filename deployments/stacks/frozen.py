"""A plan as the parameter of a job: the steps that were shown are the steps that run, whatever is planned later."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from deployments.stacks import actions
from deployments.stacks.draft import as_step
from deployments.stacks.one_npu import HELD
from deployments.stacks.options import RESTARTS
from deployments.stacks.plan import Plan
from deployments.steps import BadParams, Evidence, Step, Text, param

NAMES = {field.name for field in dataclasses.fields(Step)}
MOST_STEPS = 60
FILLED = ("plan", "npus", "before")  # by the console, when the job is queued
BY_CONSOLE = Text("由控制台填写。", "The console fills it in.")
TRIES = ("deployments.stacks.one_prompt", "deployments.stacks.one_npu")
LAST_OF_HOST = ["deployments.kinds.check_probes", "stack"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """Parameters of every kind that runs a plan: who restarts the server, and what the console fills in (FILLED)."""

    restart: str = param("choice", zh="重启", en="Restart", default="by_hand", choices=RESTARTS)
    window: str = param("text", zh="重启时间段", en="Time for the restart", default="")
    npus: list[str] = param("texts", zh="NPU", en="NPUs", default=[], help=BY_CONSOLE)
    before: str = param("text", zh="之前的版本", en="Versions before", default="", help=BY_CONSOLE)
    plan: str = param("text", zh="计划", en="Plan", default="", most_characters=48 * 1024, help=BY_CONSOLE)


def steps(planned: Planned) -> list[Step]:
    """The steps of a kind that runs a plan; those that try an NPU may use what the job holds. Raises BadParams."""
    held = ",".join(name for name in planned.npus if "/" in name)  # those of chips; beside them stand their cards
    return [
        dataclasses.replace(step, env={**step.env, HELD: held}) if held and tries_npu(step) else step
        for step in read(planned.plan)
    ]


def locks(planned: Planned) -> list[str]:
    """Its locks: the stacks of the server, what it tries an NPU on, and all of it where driver or firmware change."""
    found = read(planned.plan)
    tried = [f"npu:{npu}" for npu in planned.npus] if any(map(tries_npu, found)) else []
    return ["stack", *(host_locks(found, planned.npus) or tried)]


def tries_npu(step: Step) -> bool:
    """Whether the step lets a program work on an NPU, to see that the stack does."""
    return any(word in TRIES for word in step.argv[2:3]) and step.argv[3:5] != ["--on", "cpu"]


def write(plan: Plan) -> str:
    """JSON of the steps. What a step takes by default is left out: a job's parameters have a limit."""
    plain = Step(Text("", ""), [])
    rows = []
    for planned in plan.steps:
        step = as_step(planned)
        changed = {name: getattr(step, name) for name in NAMES if getattr(step, name) != getattr(plain, name)}
        rows.append(changed)
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def host_locks(steps: list[Step], npus: list[str]) -> list[str]:
    """What a job holds that changes driver or firmware: the server and every NPU; [] for any other."""
    return ["server", *(f"npu:{npu}" for npu in npus)] if host_part(steps) else []


def host_part(steps: list[Step]) -> int:
    """How many steps from the first belong to a change of driver or firmware, 0 where there is none."""
    if not any(changes_host(step) for step in steps):
        return 0
    last = max((n for n, step in enumerate(steps, 1) if step.argv[-2:] == LAST_OF_HOST), default=len(steps))
    return last


def changes_host(step: Step) -> bool:
    return step.needs_root and step.argv[:1] != [] and step.argv[0] in actions.CHANGES_HOST


def read(text: str) -> list[Step]:
    """The steps of such a text; none of ''. Raises BadParams for what is no plan."""
    if not text:
        return []
    try:
        rows = json.loads(text)
        if not isinstance(rows, list) or len(rows) > MOST_STEPS:
            raise ValueError
        return [_step(row) for row in rows]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        words = Text("不是控制台作出的计划", "is no plan that the console has made")
        raise BadParams([("plan", words)]) from error


def _step(row: dict[str, Any]) -> Step:
    """Raises ValueError, TypeError, KeyError where it is none."""
    if not set(row) <= NAMES:
        raise ValueError("unknown fields")
    argv = [_word(word) for word in row.get("argv", [])]
    made = {**row, "title": Text(*row["title"]), "argv": argv, "accepts": tuple(row.get("accepts", (0,))),
            "skips": tuple(row.get("skips", ())), "says": tuple(row.get("says", ())),
            "env": {_word(k): _word(v) for k, v in row.get("env", {}).items()},
            "means": tuple((_word(pattern), Text(*words)) for pattern, words in row.get("means", ()))}  # fmt: skip
    for name in ("evidence", "reads"):
        made[name] = Evidence(*map(_word, row[name])) if row.get(name) else None
    return Step(**made)


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value
