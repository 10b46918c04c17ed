"""What the fields of a row hold, and what is wrong with a row: it is named with its field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from deployments.steps import Text

STATES = ("stable", "rc", "withdrawn")
KINDS = ("npu", "cpu")
SYSTEMS = ("ubuntu", "openeuler")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,79}")
REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}(==|<|<=|>=|>|~=)[0-9][A-Za-z0-9.+*-]{0,39}")
RANGE = re.compile(r"((>=|<=|==|<|>)\d+(\.\d+){0,2})(,(>=|<=|==|<|>)\d+(\.\d+){0,2}){0,3}")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
UNSHOWN = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # controls, and halves that no page can hold


class Family(Protocol):
    """As far as rows name one."""

    @property
    def supported(self) -> bool: ...


@dataclass(frozen=True)
class Problem:
    """What is wrong in a file of rows: where (`row`, `field`; "" for the whole file or row) and why."""

    row: str
    field: str
    why: Text

    @property
    def text(self) -> Text:
        if not self.row:
            return self.why
        if not self.field:
            return Text(f"{self.row}：{self.why.zh}", f"{self.row}: {self.why.en}")
        return Text(f"{self.row} 的 {self.field}：{self.why.zh}", f"{self.row}, field {self.field}: {self.why.en}")


# Field -> what it holds; "?" may be null. Order is that of the messages.
FIELDS: dict[str, tuple[str, bool]] = {
    "name": ("name", False), "kind": ("kind", False), "vllm_ascend": ("version", False), "vllm": ("version", False),
    "python": ("range", False), "cann": ("version", False), "nnal": ("version", False), "torch": ("version", False),
    "torch_npu": ("version", False), "triton_ascend": ("version", True), "mooncake": ("version", True),
    "driver_min": ("version", True), "glibc_min": ("version", True), "wheel": ("flag", True),
    "wheel_pythons": ("words", True), "families": ("families", False), "images": ("images", False),
    "state": ("state", False), "released": ("date", True), "default": ("flag", False), "notes": ("notes", False),
    "sources": ("texts", False), "pins": ("requirements", False), "cann_by_family": ("by family", False),
}  # fmt: skip
OPTIONAL: dict[str, Any] = {
    "kind": "npu", "default": False, "pins": [], "cann_by_family": {}, "images": [], "notes": {"zh": "", "en": ""},
    "sources": [], "wheel": None, "wheel_pythons": None, "glibc_min": None, "mooncake": None, "released": None,
    "driver_min": None,
}  # fmt: skip
NEVER_EMPTY = ("vllm_ascend", "vllm", "cann", "nnal", "torch", "torch_npu")  # of a stack for NPUs
EMPTY = Text("不能为空。", "it cannot be empty.")
MISSING = Text("缺少这个字段。", "it is missing.")
WANTED: dict[str, Text] = {
    "name": Text(
        "须为小写字母、数字与 . _ -，最长 63 个字符。", "it takes small letters, digits and . _ -, at most 63."
    ),
    "kind": Text("须为 npu 或 cpu。", "it is npu or cpu."),
    "version": Text("须为一个版本号，不属于此软件栈时为空文字。", "it is one version, or an empty text."),
    "range": Text("须为 Python 版本范围，例如 >=3.10,<3.13。", "it is a range of Python, such as >=3.10,<3.13."),
    "flag": Text("须为 true 或 false。", "it is true or false."),
    "words": Text("须为文字列表。", "it is a list of texts."),
    "texts": Text("须为文字列表。", "it is a list of texts."),
    "requirements": Text("须为 transformers==5.5.4 这样的列表。", "it is a list of pins such as transformers==5.5.4."),
    "families": Text("须为芯片族的列表：A2、A3、310P、A5。", "it is a list of families: A2, A3, 310P, A5."),
    "images": Text(
        "每项须有 family、os（ubuntu 或 openeuler）与 tag。", "each has family, os (ubuntu or openeuler) and tag."
    ),
    "state": Text("须为 stable、rc 或 withdrawn。", "it is stable, rc or withdrawn."),
    "date": Text("须为 2026-08-16 这样的日期。", "it is a date such as 2026-08-16."),
    "notes": Text("须有 zh 与 en 两段文字。", "it holds two texts, zh and en."),
    "by family": Text("须为芯片族到 CANN 版本的对应。", "it maps families to versions of CANN."),
}


def shown(name: str, most: int) -> str:
    """A name out of a file, as it can be shown."""
    return UNSHOWN.sub("\ufffd", name[:most])


def _is_text(value: Any, most: int = 400) -> bool:
    return isinstance(value, str) and len(value) <= most and not UNSHOWN.search(value)


def _is_texts(value: Any, pattern: "re.Pattern[str] | None" = None) -> bool:
    if not isinstance(value, list) or len(value) > 60:
        return False
    return all(_is_text(item) and (pattern is None or bool(pattern.fullmatch(item))) for item in value)


def _is_image(value: Any, families: Mapping[str, Family]) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in ("family", "os", "tag"))
        and value["family"] in families
        and value["os"] in SYSTEMS
        and bool(WORD.fullmatch(value["tag"]))
    )


def _holds(what: str, value: Any, families: Mapping[str, Family]) -> bool:
    """Whether a value is what a field of that sort holds."""
    if what == "name":
        return isinstance(value, str) and bool(NAME.fullmatch(value))
    if what == "version":
        return isinstance(value, str) and (value == "" or bool(WORD.fullmatch(value)))
    if what in ("kind", "state"):
        return isinstance(value, str) and value in (KINDS if what == "kind" else STATES)
    if what in ("range", "date"):
        return isinstance(value, str) and bool((RANGE if what == "range" else DATE).fullmatch(value))
    if what == "flag":
        return isinstance(value, bool)
    if what == "families":
        return _is_texts(value) and all(name in families and families[name].supported for name in value)
    if what == "images":
        return isinstance(value, list) and len(value) <= 40 and all(_is_image(item, families) for item in value)
    if what == "notes":
        return isinstance(value, dict) and _is_text(value.get("zh"), 2000) and _is_text(value.get("en"), 2000)
    if what == "by family":
        return isinstance(value, dict) and all(
            k in families and _holds("version", v, families) for k, v in value.items()
        )
    return _is_texts(value, REQUIREMENT if what == "requirements" else WORD if what == "words" else None)


def check(row: Any, label: str, families: Mapping[str, Family]) -> list[Problem]:
    """What is wrong with one row; empty when it can be used."""
    if not isinstance(row, dict):
        return [Problem(label, "", Text("须为一个对象。", "it is to be an object."))]
    problems = [
        Problem(label, shown(str(name), 40), Text("没有这个字段。", "there is no such field."))
        for name in row
        if name not in FIELDS
    ]
    for name, (what, may_be_null) in FIELDS.items():
        if name not in row:
            if name not in OPTIONAL:
                problems.append(Problem(label, name, MISSING))
        elif not (row[name] is None and may_be_null) and not _holds(what, row[name], families):
            problems.append(Problem(label, name, WANTED[what]))
    whole = NEVER_EMPTY if row.get("kind", "npu") == "npu" else ("vllm",)
    return problems + [Problem(label, name, EMPTY) for name in whole if row.get(name) == ""]
