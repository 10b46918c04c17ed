"""What job kinds are made of: bilingual texts, steps and described parameters. Plain code."""

import dataclasses
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


class Text(NamedTuple):
    """One sentence in both languages."""

    zh: str
    en: str


class Evidence(NamedTuple):
    """What is to be read in which file: a line of it, or of a Python the packages `name version, …`; '' is that it is
    there. `deployments/stacks/evidence.py` looks."""

    file: str
    value: str


@dataclasses.dataclass(frozen=True)
class Step:
    """One titled command of a job. `argv` is an argument list, never a shell string.

    `npus` are bus ids; the runner makes ASCEND_RT_VISIBLE_DEVICES of them when the step starts.
    With `may_fail` the job goes on after a non-zero exit code.

    With `needs_root` the argument list is an action of the root helper and its arguments (`agent/root_helper.py`).

    A `reboot` step ends when the server has started anew, for which it has `reboot_s` seconds; the job then goes on
    with the next step. Its command is what restarts the server; without one a person does.

    A step with `evidence` has no command: it is skipped where that is still found, and fails where it is not. One
    that `reads` something must have brought it about; with `once` it is skipped where that is there before.
    `accepts` are exit codes that are no failure, `says` patterns (any case) of which one must be printed, `means`
    patterns with what it means that they were printed by a step that failed. An `unattended` step is ended when it
    asks a question. While a step prints nothing, it is told how much has come into the folder that it `fills`. By an
    exit code of `skips` it tells that there was nothing for it to do.

    A step that goes on `to_its_end` is not ended by a cancel or its deadline: the job ends behind it. One that is run
    `always` puts right what a step before has changed, also where one failed since or the job was cancelled.
    """

    title: Text
    argv: list[str]
    npus: list[str] = dataclasses.field(default_factory=list)
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    timeout_s: float = 3600.0
    may_fail: bool = False
    needs_root: bool = False
    reboot: bool = False
    reboot_s: float = 1800.0  # such machines take 8 to 15 minutes
    evidence: Evidence | None = None
    reads: Evidence | None = None
    once: bool = False
    accepts: tuple[int, ...] = (0,)
    skips: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    means: tuple[tuple[str, Text], ...] = ()
    unattended: bool = False
    fills: str = ""
    to_its_end: bool = False
    always: bool = False


PYTHON = "{python}"  # the runner puts its own interpreter here, so that steps read the same on console and server

ATTEMPT = "{attempt}"  # the same for the id of the attempt, in what root is asked for


def python_module(name: str, *arguments: str) -> list[str]:
    """The argument list that runs one of our own modules on the server."""
    return [PYTHON, "-m", name, *arguments]


def resolve(argv: list[str]) -> list[str]:
    """`argv` as this machine runs it."""
    return [sys.executable if word == PYTHON else word for word in argv]


def param(
    widget: str, *, zh: str, en: str, help: Text | None = None, default: Any = dataclasses.MISSING, **limits: Any
) -> Any:
    """A field of a kind's Params: `widget` names how a form asks for it; `limits` are least, most, choices, pattern
    with an example."""
    metadata = {"widget": widget, "label": Text(zh, en), "help": help, "limits": limits}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class BadParams(ValueError):
    """Parameters that a kind refuses; `problems` holds one (field, Text) each."""

    def __init__(self, problems: list[tuple[str, Text]]) -> None:
        super().__init__("; ".join(f"{name}: {text.en}" for name, text in problems))
        self.problems = problems


TYPE_NAMES: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "integer": int,
    "number": (int, float),
    "flag": bool,
    "choice": str,
    "artifact": str,
    "new_folder": str,
    "npus": list,
    "texts": list,
    "table": dict,
}
TYPE_WORDS = {
    "text": Text("一段文字", "a text"),
    "integer": Text("整数", "a whole number"),
    "number": Text("数", "a number"),
    "flag": Text("true 或 false", "true or false"),
    "choice": Text("一段文字", "a text"),
    "artifact": Text("模型的路径", "the path of a model"),
    "new_folder": Text("新目录的路径", "the path of a new folder"),
    "npus": Text("bus id 列表", "a list of bus ids"),
    "texts": Text("文字列表", "a list of texts"),
    "table": Text("名称与值", "an object of names and values"),
}


def read_params(cls: type, given: Mapping[str, Any]) -> Any:
    """`cls` made of JSON values. Raises BadParams naming every field that is missing, unknown or of the wrong type."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    problems = [(name, Text("没有这个参数", "there is no such parameter")) for name in given if name not in fields]
    for name, field in fields.items():
        if name in given:
            problems += [(name, text) for text in _problems(field, given[name])]
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append((name, Text("缺少", "is missing")))
    if problems:
        raise BadParams(problems)
    return cls(**given)


def _problems(field: "dataclasses.Field[Any]", value: Any) -> list[Text]:
    widget = field.metadata.get("widget", "text")
    expected = TYPE_NAMES.get(widget, str)
    if not isinstance(value, expected) or (isinstance(value, bool) and widget != "flag"):
        words = TYPE_WORDS.get(widget, TYPE_WORDS["text"])
        return [Text(f"须为{words.zh}", f"must be {words.en}")]
    if isinstance(value, list) and not all(isinstance(item, str) for item in value):
        return [Text("列表里只能是文字", "must hold texts only")]
    return _outside(field.metadata.get("limits", {}), value)


def _outside(limits: Mapping[str, Any], value: Any) -> list[Text]:
    if "choices" in limits and value not in limits["choices"]:
        words = ", ".join(map(str, limits["choices"]))
        return [Text(f"须为其中之一：{words}", f"must be one of {words}")]
    if "least" in limits and value < limits["least"]:
        return [Text(f"至少为 {limits['least']}", f"must be at least {limits['least']}")]
    if "most" in limits and value > limits["most"]:
        return [Text(f"至多为 {limits['most']}", f"must be at most {limits['most']}")]
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        like = limits.get("example", limits["pattern"])
        return [Text(f"须形如 {like}", f"must look like {like}")]
    if isinstance(value, str) and (len(value) > limits.get("most_characters", 4096) or "\0" in value):
        return [Text("太长，或含有空字符", "is too long or holds a null character")]
    return []
