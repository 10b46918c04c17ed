"""Bring a server's agent to the console's own version, and back where it does not come up.

The console fills in the parameters, so the form does not offer it: it is queued from the page of the agents' versions.
The job's runner belongs to the agent before and outlives its restart, which is how it can watch the new one.
Agents of every version take these two parameters: a newer console must be able to upgrade an older agent.
"""

from dataclasses import dataclass

from deployments.steps import Step, Text, param, python_module

TITLE = Text("升级代理", "Upgrade the agent")
OWN_PAGE = True
FETCH_S = 900.0
SWITCH_S = 300.0  # the agent's end, a minute for the new one, and a minute for the one before


@dataclass(frozen=True)
class Params:
    digest: str = param(
        "text", zh="代理包摘要", en="Digest of the agent's bundle", pattern="[0-9a-f]{64}",
        help=Text("SHA-256；服务器据此核对收到的代理包。", "SHA-256; the server compares what it gets with it."),
    )  # fmt: skip
    version: str = param("text", zh="版本", en="Version", default="")


def locks(p: Params) -> list[str]:
    """The agent itself: two upgrades of one server never meet. Other jobs go on beside it."""
    return ["agent"]


def steps(p: Params) -> list[Step]:
    return [
        Step(
            Text(f"从控制台取得代理 {p.version}".strip(), f"Fetch agent {p.version} from the console"),
            python_module("deployments.agent.bundles", p.digest),
            timeout_s=FETCH_S,
        ),
        Step(
            Text("换用新代理，失败则回退", "Switch over, and back where it does not come up"),
            python_module("deployments.agent.upgrade", p.digest),
            timeout_s=SWITCH_S,
        ),
    ]


def undo(p: Params) -> list[Step]:
    """Nothing: a console hands out its own version only."""
    return []
