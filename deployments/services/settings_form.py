"""The form of an engine's settings: fields in groups, what was typed in them, and what older guides call them.

The page of a new deployment and that of a change use it. Nothing is refused here: what is wrong comes back by field.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.translation import gettext as _

from console.language import pick
from deployments.forms import FULL, PREFIX
from deployments.serving import flags, guide_words, settings
from deployments.serving.additional import KEYS
from deployments.serving.guide_words import Heard
from deployments.serving.variables import KNOWN
from deployments.steps import BadParams, Text

MOST_TYPED = 20_000
# Title, fields, and whether the group is open at once.
GROUPS: tuple[tuple[Text, tuple[str, ...], bool], ...] = (
    (Text("常用", "Usual"), ("served_model_name", "max_model_len", "max_num_seqs", "gpu_memory_utilization", "dtype",
                             "quantization"), True),
    (Text("并行", "Parallel"), ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
                                "enable_expert_parallel", "nodes", "backend", "prefill_context_parallel_size",
                                "decode_context_parallel_size"), True),
    (Text("缓存与调度", "Cache and scheduling"), ("max_num_batched_tokens", "block_size", "prefix_caching",
                                                 "chunked_prefill", "kv_cache_gib", "kv_offloading_size",
                                                 "async_scheduling", "scheduling_policy", "stream_interval"), False),
    (Text("图与推测解码", "Graphs and speculation"), ("enforce_eager", "cudagraph_mode", "capture_sizes",
                                                     "speculative_method", "num_speculative_tokens",
                                                     "speculative_model"), False),
    (Text("对话与工具", "Chat and tools"), ("enable_auto_tool_choice", "tool_call_parser", "reasoning_parser",
                                           "chat_template", "generation_config", "seed", "log_requests"), False),
    (Text("运行方式", "How it runs"), ("device", "route", "image", "ready_min", "load_format", "trust_remote_code",
                                      "enable_lora", "max_loras", "max_lora_rank"), False),
)  # fmt: skip
TABLES = {"additional": Text("附加配置", "Additional config"), "env": Text("环境变量", "Environment")}


@dataclass(frozen=True)
class Input:
    """One setting as the page asks for it. `value` is a text or a bool; `flag` is what it becomes."""

    name: str
    input_name: str
    widget: str
    label: Text
    help: Text | None
    value: Any
    usual: str
    choices: tuple[str, ...] = ()
    error: str = ""
    differs: bool = False


@dataclass(frozen=True)
class Group:
    key: str
    title: Text
    inputs: tuple[Input, ...]
    is_open: bool

    @property
    def differing(self) -> int:
        return sum(one.differs for one in self.inputs)


@dataclass(frozen=True)
class Typed:
    """`data` are JSON values of what was said; `problems` by field; `heard` is what a guide's lines meant."""

    data: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    heard: tuple[Heard, ...] = ()


# ---------- what was typed ----------


def read(given: QueryDict) -> Typed:
    """What a sent form says; lines of a guide fill in what no field says otherwise."""
    data: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name in settings.FIELDS:
        try:
            _read_field(name, given, data)
        except ValueError as error:
            problems[name] = str(error)
    understood = guide_words.understand(given.get("guide", ""))
    for name, value in understood.settings.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return Typed(data, {**refusals(data), **problems}, understood.heard)


def refusals(data: Mapping[str, Any]) -> dict[str, str]:
    try:
        settings.read(data)
    except BadParams as error:
        return {name: pick(text) for name, text in error.problems}
    return {}


def _read_field(name: str, given: QueryDict, data: dict[str, Any]) -> None:
    """Raises ValueError with a sentence."""
    widget, sent = settings.FIELDS[name].metadata["widget"], PREFIX + name
    if widget == "flag":
        if sent in given or FULL in given:
            data[name] = given.get(sent, "") not in ("", "0", "false")
        return
    text = given.get(sent, "")[:MOST_TYPED].strip()
    if name == "additional":
        made: Any = _additional(text, given)
    elif name == "env":
        made = _variables(text, given)
    elif name == "extra":
        made = _words(text)
    elif widget == "texts":
        made = text.replace(",", " ").split()
    else:
        made = _value(widget, text) if text else None
    if made not in (None, [], {}):
        data[name] = made


def _value(widget: str, text: str) -> Any:
    if widget not in ("integer", "number"):
        return text
    try:
        return int(text.replace(",", "").replace("_", "")) if widget == "integer" else float(text)
    except ValueError:
        what = _("“%(text)s” is not a whole number.") if widget == "integer" else _("“%(text)s” is not a number.")
        raise ValueError(what % {"text": text[:40]}) from None


def _words(text: str) -> list[str]:
    try:
        return flags.split(text)
    except ValueError:
        raise ValueError(_("A quotation mark is not closed.")) from None


def _additional(text: str, given: QueryDict) -> dict[str, Any]:
    made: Any = {}
    if text:
        try:
            made = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(_('This is no JSON, such as {"eplb_config": {"dynamic_eplb": true}}.')) from None
    if not isinstance(made, dict):
        raise ValueError(_("It must be a JSON object."))
    for name, key in KEYS.items():
        said = given.get(f"{PREFIX}additional-{name}", "").strip()
        if said and isinstance(key.default, bool):
            made[name] = said == "true"
        elif said and isinstance(key.default, int):
            made[name] = _value("integer", said)
    return made


def _variables(text: str, given: QueryDict) -> dict[str, str]:
    made = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not name and not equals:
            continue
        if not equals:
            raise ValueError(_("“%(line)s” is not NAME=VALUE.") % {"line": line.strip()[:60]})
        made[name.strip()] = value.strip().strip("\"'")
    typed = {name: given.get(f"{PREFIX}env-{name}", "").strip() for name in KNOWN}
    return {**made, **{name: value for name, value in typed.items() if value}}


# ---------- what is shown ----------


def groups(data: Mapping[str, Any], problems: Mapping[str, str]) -> list[Group]:
    """All settings with what is said or usual; a group with a mistake or something said is open."""
    device = str(data.get("device", "npu"))
    made = [
        _group(f"g{n}", title, [_input(name, data, problems, device) for name in names], is_open)
        for n, (title, names, is_open) in enumerate(GROUPS)
    ]
    made.append(_group("additional", TABLES["additional"], list(_additional_inputs(data, problems)), False))
    made.append(_group("env", TABLES["env"], list(_env_inputs(data, problems)), False))
    expert = [_input(name, data, problems, device) for name in ("extra", "accept_unknown")]
    return [*made, _group("expert", Text("其他参数", "Further words"), expert, False)]


def _group(key: str, title: Text, inputs: list[Input], is_open: bool) -> Group:
    return Group(key, title, tuple(inputs), is_open or any(one.error or one.differs for one in inputs))


def _input(name: str, data: Mapping[str, Any], problems: Mapping[str, str], device: str) -> Input:
    meta = settings.FIELDS[name].metadata
    usual = settings.default(name, device)
    value = data.get(name, usual)
    choices = tuple(str(one) for one in meta["limits"].get("choices", ()))
    shown = value if isinstance(value, bool) else _shown(name, value)
    return Input(
        name, PREFIX + name, meta["widget"], meta["label"], meta["help"], shown, settings.words(usual), choices,
        problems.get(name, ""), value != usual,
    )  # fmt: skip


def _shown(name: str, value: Any) -> str:
    if name == "extra" and isinstance(value, list):
        return _quoted(value)
    return settings.words(value)


def _quoted(words: list[str]) -> str:
    """As it may be typed again: a flag begins a line."""
    text = ""
    for word in words:
        begins = word.startswith("--") and text
        text += ("\n" if begins else " " if text else "") + shlex.quote(word)
    return text


def _additional_inputs(data: Mapping[str, Any], problems: Mapping[str, str]) -> Iterator[Input]:
    given = data.get("additional", {})
    rest = dict(given) if isinstance(given, dict) else {}
    for name, key in KEYS.items():
        if isinstance(key.default, (dict, list)):
            continue
        value = rest.pop(name, None)
        usual = str(key.default).lower()
        choices = ("", "true", "false") if isinstance(key.default, bool) else tuple(map(str, ("", *key.choices)))
        yield Input(
            name, f"{PREFIX}additional-{name}", "choice" if len(choices) > 1 else "integer", Text(name, name), key.help,
            "" if value is None else str(value).lower(), usual, choices, "", value is not None,
        )  # fmt: skip
    shown = json.dumps(rest, ensure_ascii=False) if rest else ""
    help = Text("其余的键，JSON 对象：" + _nested(), "The other keys, a JSON object: " + _nested())
    yield Input(
        "additional", f"{PREFIX}additional", "texts", Text("其余（JSON）", "Others (JSON)"), help, shown, "", (),
        problems.get("additional", ""), bool(rest),
    )  # fmt: skip


def _nested() -> str:
    return ", ".join(name for name, key in KEYS.items() if isinstance(key.default, (dict, list)))


def _env_inputs(data: Mapping[str, Any], problems: Mapping[str, str]) -> Iterator[Input]:
    given = data.get("env", {})
    rest = dict(given) if isinstance(given, dict) else {}
    for name, one in KNOWN.items():
        value = rest.pop(name, "")
        choices = ("", *one.choices) if one.choices else ()
        yield Input(
            name, f"{PREFIX}env-{name}", "choice" if choices else "text", Text(name, name), one.help, value, one.usual,
            choices, "", bool(value),
        )  # fmt: skip
    shown = "\n".join(f"{name}={value}" for name, value in rest.items())
    label = Text("其余（每行 名称=值）", "Others (NAME=VALUE, one per line)")
    yield Input(
        "env", f"{PREFIX}env", "texts", label, None, shown, "",
        (),
        problems.get("env", ""), bool(rest),
    )  # fmt: skip


def query(data: Mapping[str, Any]) -> str:
    """The settings as words of an address that `read` understands."""
    return urlencode(pairs(data))


def pairs(data: Mapping[str, Any]) -> dict[str, str]:
    """The same as names and values of a form."""
    made: dict[str, str] = {}
    for name, value in data.items():
        if name == "additional":
            made[PREFIX + name] = json.dumps(value, separators=(",", ":"))
        elif name == "env":
            made[PREFIX + name] = "\n".join(f"{key}={one}" for key, one in value.items())
        elif isinstance(value, bool):
            made[PREFIX + name] = "1" if value else "0"
        else:
            made[PREFIX + name] = _shown(name, value)
    return made
