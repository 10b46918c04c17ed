"""What an evaluation asks: of which models, with which engine and prompts. From a step's arguments, and read by all of
its programs."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deployments.artifacts.prompts import Prompt, bundled, parse, read
from deployments.stacks.activate import TOOLS
from deployments.steps import Text

ENGINES = ("auto", "vllm", "reference")
DTYPES = ("auto", "bfloat16", "float16", "float32")
ROLES = ("parent", "child")
PASTED = "EVALUATE_PASTED"  # the variable that holds pasted prompts
DESCRIPTION = "quant_model_description.json"
FOLDER = "answers"  # of the attempt, for what its steps leave one another


class CannotAnswer(Exception):
    """A model could not be asked; `text` says why and what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


@dataclass(frozen=True)
class Ask:
    """`stacks` is the folder of the stacks, of which `current` is used; `npus` whether the step may see some;
    `tasks` those of lm_eval or evalscope, '' for none."""

    parent: Path
    child: Path
    stacks: Path
    engine: str = "auto"
    prompts: str = ""
    max_tokens: int = 64
    max_length: int = 2048
    dtype: str = "auto"
    remote_code: bool = False
    npus: bool = False
    starts_s: float = 1800.0
    tool: str = ""
    tasks: str = ""
    limit: int = 0

    @property
    def current(self) -> Path:
        return self.stacks / "current"

    @property
    def activate(self) -> Path:
        return self.current / "activate"

    @property
    def tools_python(self) -> Path:
        """The Python of msModelSlim's environment, which has transformers."""
        return self.current / TOOLS / "bin" / "python"

    def model(self, role: str) -> Path:
        return self.parent if role == "parent" else self.child

    def chosen(self) -> str:
        """The engine: vLLM on CPUs cannot read what msModelSlim writes."""
        if self.engine != "auto":
            return self.engine
        return "reference" if is_quantized(self.child) and not self.npus else "vllm"

    def every_prompt(self) -> list[Prompt]:
        """Raises BadPrompts."""
        if pasted := os.environ.get(PASTED):
            return parse(pasted)
        return read(Path(self.prompts)) if self.prompts else bundled()


def is_quantized(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file()


def argv(ask: Ask) -> list[str]:
    """The arguments from which `from_arguments` makes the same again."""
    words = ["--parent", str(ask.parent), "--child", str(ask.child), "--stacks", str(ask.stacks), "--engine",
             ask.engine, "--max-tokens", str(ask.max_tokens), "--max-length", str(ask.max_length), "--dtype", ask.dtype,
             "--starts", f"{ask.starts_s:g}"]  # fmt: skip
    for name, value in (("--prompts", ask.prompts), ("--tool", ask.tool), ("--tasks", ask.tasks)):
        words += [name, value] if value else []
    words += ["--limit", str(ask.limit)] if ask.limit else []
    return [*words, *(["--npus"] if ask.npus else []), *(["--remote-code"] if ask.remote_code else [])]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("--parent", "--child", "--stacks"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--dtype", choices=DTYPES, default="auto")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--starts", type=float, default=1800.0, dest="starts_s")
    for name in ("--prompts", "--tool", "--tasks"):
        parser.add_argument(name, default="")
    parser.add_argument("--limit", type=int, default=0)
    for name in ("--npus", "--remote-code"):
        parser.add_argument(name, action="store_true")


def from_arguments(parsed: argparse.Namespace) -> Ask:
    return Ask(**{name: getattr(parsed, name) for name in Ask.__dataclass_fields__})


def folder() -> Path:
    """Where the steps of one attempt leave one another their answers: the runner starts them in its folder."""
    return Path.cwd() / FOLDER


def problems(ask: Ask, roles: Sequence[str] = ROLES) -> Text | None:
    """Why these models cannot be asked on this server; None where nothing is known against it."""
    for role in roles:
        if not (ask.model(role) / "config.json").is_file():
            return no_model(ask.model(role), role)
    if not ask.activate.is_file():
        return Text(
            f"{ask.current} 里没有在用的软件栈。请先在这台服务器上安装一个软件栈。",
            f"There is no stack in use in {ask.current}. Install one on this server first.",
        )
    if ask.chosen() == "reference" and not os.access(ask.tools_python, os.X_OK):
        return Text(
            f"“参考”引擎需要 {ask.tools_python}，而在用的软件栈没有它。请安装带 msModelSlim 的软件栈，或选 vLLM 引擎。",
            f"The engine “reference” needs {ask.tools_python}, which the stack in use lacks. Install a stack with "
            "msModelSlim, or choose the engine vLLM.",
        )
    if ask.chosen() == "vllm" and is_quantized(ask.child) and not ask.npus:
        return Text(
            "没有选 NPU，而 CPU 上的 vLLM 读不了 msModelSlim 的格式。请选择 NPU，或选“参考”引擎。",
            "No NPU was chosen, and vLLM on CPUs cannot read what msModelSlim writes. Choose NPUs, or the engine "
            "“reference”.",
        )
    return None


def no_model(path: Path, role: str) -> Text:
    who = Text("父模型", "parent") if role == "parent" else Text("子模型", "child")
    return Text(
        f"这台服务器的 {path} 里没有{who.zh}（config.json）。请把它复制到这台服务器，或改正路径，再重试。",
        f"The {who.en} is not in {path} on this server (config.json). Copy it to this server or correct the path, "
        "then try again.",
    )
