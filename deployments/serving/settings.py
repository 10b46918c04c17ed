"""Settings of a revision: read from JSON, written as what differs from the defaults, compared, judged.

`problems` says what would keep an engine with them from starting or from answering well.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.serving.fields import Settings
from deployments.serving.setting_problems import problems
from deployments.steps import BadParams, Text, read_params

__all__ = ["Change", "Settings", "as_json", "default", "diff", "label", "npus", "problems", "read"]

CPU = {"max_num_seqs": 16}  # other defaults on a machine without NPUs
MOST_WORDS, MOST_WORD, MOST_TABLE = 200, 4096, 64 * 1024
FIELDS = {field.name: field for field in dataclasses.fields(Settings)}


@dataclass(frozen=True)
class Change:
    """One setting that differs between two revisions, as people read it; '' stands for a default."""

    field: str
    label: Text
    before: str
    after: str


def default(name: str, device: str = "npu") -> Any:
    """Of a field, on that device."""
    field = FIELDS[name]
    if device == "cpu" and name in CPU:
        return CPU[name]
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def read(data: Mapping[str, Any]) -> Settings:
    """Of JSON; what is absent is the default of its device. Raises BadParams with one (field, Text) each."""
    device = data.get("device", "npu")
    base = CPU if device == "cpu" else {}
    made: Settings = read_params(Settings, {**base, **data})
    wrong = [(name, text) for name in FIELDS for text in _lists(name, getattr(made, name))]
    if wrong:
        raise BadParams(wrong)
    return made


def _lists(name: str, value: Any) -> list[Text]:
    """What read_params does not look into: items of lists and tables, and what is no number at all."""
    if isinstance(value, float) and value != value:
        return [Text("须为数", "must be a number")]
    if isinstance(value, list):
        if len(value) > MOST_WORDS or any(len(word) > MOST_WORD or "\0" in word for word in value):
            return [Text("太多或太长，或含有空字符", "are too many or too long, or hold a null character")]
        if name == "capture_sizes" and not all(word.isdecimal() and 0 < int(word) <= 65_536 for word in value):
            return [Text("须为正整数", "must be whole numbers above 0")]
    if isinstance(value, dict):
        if len(value) > MOST_WORDS or not all(isinstance(key, str) and 0 < len(key) <= 128 for key in value):
            return [Text("名称太多或太长", "has too many names, or too long ones")]
        if not _can_be_kept(value):
            return [Text("太长，或含有无法保存的值", "is too long, or holds what cannot be kept")]
        if name == "env" and not all(isinstance(one, str) and _plain(one) for one in value.values()):
            return [Text("变量的值须为一行文字", "holds texts of one line only")]
    return []


def _can_be_kept(value: dict[str, Any]) -> bool:
    """Neither a null character, nor a number that is none, nor more than anybody means."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return len(text) <= MOST_TABLE and "\\u0000" not in text


def _plain(value: str) -> bool:
    return len(value) <= MOST_WORD and not any(character in value for character in "\0\n\r")


def as_json(settings: Settings) -> dict[str, Any]:
    """Only what differs from the defaults of its device."""
    found = {name: getattr(settings, name) for name in FIELDS}
    return {name: value for name, value in found.items() if value != default(name, settings.device)}


def npus(settings: Settings) -> int:
    """How many NPUs one replica takes, on all its servers together; 0 on CPU."""
    if settings.device == "cpu":
        return 0
    one = settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.prefill_context_parallel_size
    return one * settings.data_parallel_size


def label(name: str) -> Text:
    found: Text = FIELDS[name].metadata["label"]
    return found


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What differs between two JSON shapes, in the order of the fields; names that no field has come last."""
    sides = [_whole(old), _whole(new)]
    names = [*FIELDS, *sorted({*old, *new} - set(FIELDS))]
    changes = []
    for name in names:
        before, after = (side.get(name) for side in sides)
        if before != after:
            title = label(name) if name in FIELDS else Text(name, name)
            changes.append(Change(name, title, words(before), words(after)))
    return changes


def _whole(data: Mapping[str, Any]) -> dict[str, Any]:
    device = str(data.get("device", "npu"))
    return {**{name: default(name, device) for name in FIELDS}, **data}


def words(value: Any) -> str:
    """A value as one reads it: `a=1, b=2` of a table, words of a list."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
