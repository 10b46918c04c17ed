"""The server as facts see it: the host of the probes, with the agent's own environment and its own way to run tools."""

from pathlib import Path

from deployments.agent.tools import Run
from deployments.kinds.check_probes.host import TOOL_TIMEOUT_S, Answer, Host, Trouble
from deployments.steps import Text


class FactsHost(Host):
    """`run_tool` runs tools; the demo puts a function of its own there."""

    env: dict[str, str]

    def __init__(self, root: Path, env: dict[str, str], run_tool: Run) -> None:
        super().__init__(root)
        self.env = env
        self.run_tool = run_tool

    def run(self, *argv: str, timeout_s: float = TOOL_TIMEOUT_S) -> Answer | None:
        """As of the probes. Raises Trouble when the tool hangs or cannot start."""
        output = self.run_tool(argv, env={**self.env, "LC_ALL": "C"}, timeout_s=timeout_s)
        if output.problem == "not_found" or output.code == 127:
            return None
        if output.problem or output.code is None:
            raise Trouble(
                Text(f"{argv[0]} 没有回答（{output.problem}）", f"{argv[0]} did not answer ({output.problem})")
            )
        return Answer(output.code, output.text)
