"""What a stack is to a server: it matches, it can be reached, it cannot, or nobody can tell yet."""

from dataclasses import dataclass
from functools import lru_cache

from deployments.stacks import plan
from deployments.stacks.cann_layer import TITLES
from deployments.stacks.catalogue import Catalogue, Stack
from deployments.stacks.installed import Installed
from deployments.steps import Text

MATCHES, REACHABLE, CANNOT, UNKNOWN = "matches", "reachable", "cannot", "unknown"
CHANGES = ("driver", "firmware", "toolkit", "ops", "nnal", "vllm_ascend", "image", "vllm")
AFTERWARDS = ("activate", "smoke", "one_prompt", "tools_smoke", "use")  # what ends every plan that changes something
WORDS = (MATCHES, REACHABLE, CANNOT, UNKNOWN)


@dataclass(frozen=True)
class Verdict:
    """`because` says why it cannot, or what is not known; `steps` are the titles of what would run, `changes` of
    those that an operator thinks of."""

    word: str
    route: str
    because: tuple[Text, ...] = ()
    steps: tuple[Text, ...] = ()
    changes: tuple[Text, ...] = ()
    gaps: tuple[Text, ...] = ()
    reboots: bool = False


@lru_cache(maxsize=50_000)
def of(installed: Installed, stack: Stack, catalogue: Catalogue) -> Verdict:
    """The verdict with nothing chosen. Servers that are alike share one."""
    return summed(plan.make(installed, stack, catalogue))


def summed(made: plan.Plan) -> Verdict:
    if made.refusals:
        unknown = all(refusal.code == "unknown" for refusal in made.refusals)
        because = tuple(refusal.text for refusal in made.refusals)
        return Verdict(UNKNOWN if unknown else CANNOT, made.route, because)
    todo = made.to_run
    if not todo:
        return Verdict(MATCHES, made.route)
    steps = tuple(step.title for step in todo)
    changes = tuple(step.title for step in todo if step.key in CHANGES)
    if all(step.key in AFTERWARDS for step in todo):  # it lies there, and another one is in use
        return Verdict(REACHABLE, made.route, (), steps, steps[-1:], made.gaps, made.reboots)
    keys = {step.key for step in made.steps if step.state == "satisfied"}
    if "packages" in keys and all(step.state == "look" for step in todo if step.key not in AFTERWARDS):
        parts = [TITLES[step.key] for step in todo if step.key in TITLES]
        note = Text(
            f"就代理所知符合；没有文件写明的有：{'、'.join(part.zh for part in parts)}。",
            f"As far as its agent can tell; no file tells of: {', '.join(part.en for part in parts)}.",
        )
        return Verdict(MATCHES, made.route, (note,), steps, changes, made.gaps, made.reboots)
    if not any(step.state == "run" and step.key not in AFTERWARDS for step in todo):
        words = Text(
            "代理没有上报这几项，无法判断是否已满足。", "Its agent has not told of these, so nobody can tell yet."
        )
        return Verdict(UNKNOWN, made.route, (words,), steps, changes, made.gaps, made.reboots)
    return Verdict(REACHABLE, made.route, (), steps, changes, made.gaps, made.reboots)
