"""Models that are known beforehand: what each needs, which chips run it, which quantizations were verified.

The rows of models.json and those that a site adds. None stands for what no source told.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from deployments.artifacts import sizes
from deployments.steps import Text

BUILT_IN = Path(__file__).parent / "models.json"
MOST_BYTES = 1024 * 1024
MOST_ROWS = 500
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
TYPE = re.compile(r"[a-z0-9]{2,12}")
LEVELS = ("core", "extended", "experimental", "tutorial", "tool", "none")
WHOLE = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "kv_lora_rank", "qk_rope_head_dim", "vocab", "max_position",
    "experts", "full_attention_layers", "kv_bytes_per_token",
)  # fmt: skip
NUMBERS = ("params_b", "active_b")
WORDS = ("native_dtype", "source")
FIELDS = ("id", *NUMBERS, *WHOLE, *WORDS, "support", "quant", "notes", "checked", "tied")


class Support(NamedTuple):
    """`level` of vLLM-Ascend's lists; `context` is the longest one they name; `text` is where that stands."""

    level: str = "none"
    chips: tuple[str, ...] = ()
    context: str | None = None
    text: str = ""


class Quant(NamedTuple):
    """A type as msModelSlim names it. `one_click`: it has a recipe; `only` is the one engine it was verified with."""

    type: str
    one_click: bool = False
    only: str = ""


@dataclass(frozen=True)
class Known:
    """One model. `params_b` and `active_b` are in 10⁹."""

    id: str
    params_b: float | None = None
    active_b: float | None = None
    native_dtype: str = ""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    vocab: int | None = None
    max_position: int | None = None
    experts: int | None = None
    full_attention_layers: int | None = None
    kv_bytes_per_token: int | None = None
    support: Support = Support()
    quant: tuple[Quant, ...] = ()
    notes: Text = Text("", "")
    source: str = ""
    checked: bool = False
    tied: bool = False  # the last layer is the embeddings once more
    site: bool = False

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def owner(self) -> str:
        return self.id.rpartition("/")[0]

    @property
    def weights(self) -> dict[str, float | None]:
        """GB of weights by type: bf16, int8, int4."""
        embedded = (self.vocab or 0) * (self.hidden or 0) * (1 if self.tied else 2)
        return {kind: sizes.weights_gb(self.params_b, embedded / 1e9, kind) for kind in sizes.KINDS}

    def least(self, kind: str, card_gb: int) -> int | None:
        """The smallest count of NPUs with that memory which holds weights of that type and a little context."""
        is_mla = bool(self.kv_lora_rank)
        shared = 1 if is_mla else self.kv_heads or 1
        return sizes.least_npus(self.weights[kind], self.kv_bytes_per_token or 0, shared, card_gb)


@dataclass(frozen=True, eq=False)
class Models:
    """Everything of models.json. `problems` are those of the site's file, whose rows are then left out."""

    version: str
    about: Text
    sources: tuple[str, ...]
    rows: Mapping[str, Known]  # by id, in the order of the file
    problems: tuple[Text, ...] = ()


class BadRow(ValueError):
    """A row that cannot be taken; `text` names the field."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


@lru_cache(maxsize=1)
def built_in() -> Models:
    data = json.loads(BUILT_IN.read_text(encoding="utf-8"))
    rows = {row["id"]: make(row) for row in data["models"]}
    return Models(data["version"], Text(*data["about"]), tuple(data["sources"]), rows)


def with_site_rows(path: Path) -> Models:
    """The built-in rows and those of a site's file, which may replace one by its id.

    A file with a mistake is left out as a whole.
    """
    base = built_in()
    try:
        if path.stat().st_size > MOST_BYTES:
            return _without(base, [Text(f"{path.name} 大于 1 MB。", f"{path.name} is larger than 1 MB.")])
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return base
    except (OSError, ValueError, RecursionError) as error:
        return _without(base, [Text(f"{path.name} 无法读取：{error}", f"{path.name} cannot be read: {error}")])
    given = data.get("models") if isinstance(data, dict) else data
    if not isinstance(given, list) or len(given) > MOST_ROWS:
        words = Text(
            f"{path.name} 须为至多 {MOST_ROWS} 行的列表。", f"{path.name} holds a list of at most {MOST_ROWS} rows."
        )
        return _without(base, [words])
    return _with(base, path.name, given)


def _with(base: Models, name: str, given: list[Any]) -> Models:
    made: dict[str, Known] = {}
    problems = []
    for number, row in enumerate(given, 1):
        try:
            known = make(row, site=True)
        except BadRow as error:
            problems.append(Text(f"{name} 第 {number} 行：{error.text.zh}", f"{name}, row {number}: {error.text.en}"))
            continue
        made[known.id] = known
    if problems:
        return _without(base, problems[:50])
    return Models(
        base.version, base.about, base.sources, {**made, **{n: r for n, r in base.rows.items() if n not in made}}
    )


def _without(base: Models, problems: list[Text]) -> Models:
    return Models(base.version, base.about, base.sources, base.rows, tuple(problems))


# ---------- one row ----------


def make(row: Any, *, site: bool = False) -> Known:
    """Raises BadRow."""
    if not isinstance(row, dict):
        raise BadRow(Text("须为一个对象。", "it is no object."))
    if strange := sorted(set(map(str, row)) - set(FIELDS)):
        raise BadRow(Text(f"没有 {strange[0][:40]} 这个字段。", f"there is no field {strange[0][:40]}."))
    name = row.get("id")
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise BadRow(Text("id 须形如 Qwen/Qwen3-8B。", "id is like Qwen/Qwen3-8B."))
    values: dict[str, Any] = {field: _whole(row, field) for field in WHOLE}
    values |= {field: _number(row, field) for field in NUMBERS}
    values |= {field: _word(row, field) for field in WORDS}
    if "kv_bytes_per_token" not in row:  # null says that no formula fits
        values["kv_bytes_per_token"] = sizes.kv_bytes_per_token(**{name: values[name] for name in sizes.KV_FIELDS})
    return Known(
        id=name, support=_support(row.get("support")), quant=_quants(row.get("quant")), notes=_notes(row.get("notes")),
        checked=row.get("checked") is True, tied=row.get("tied") is True, site=site, **values,
    )  # fmt: skip


def _whole(row: dict[str, Any], field: str) -> int | None:
    value = row.get(field)
    if value is None or (type(value) is int and 0 <= value < 10**9):
        return value
    raise BadRow(Text(f"{field} 须为非负整数。", f"{field} is a whole number from 0 on."))


def _number(row: dict[str, Any], field: str) -> float | None:
    value = row.get(field)
    if value is None or (type(value) in (int, float) and 0 < value < 10**6):
        return value
    raise BadRow(Text(f"{field} 须为正数，以 10 亿计。", f"{field} is a number above 0, in 10⁹."))


def _word(row: dict[str, Any], field: str) -> str:
    value = row.get(field, "")
    if isinstance(value, str) and len(value) <= 300:
        return value
    raise BadRow(Text(f"{field} 须为一段文字。", f"{field} is a text."))


def _support(value: Any) -> Support:
    if value is None:
        return Support()
    chips = value.get("chips", []) if isinstance(value, dict) else None
    if (
        not isinstance(value, dict)
        or value.get("level") not in LEVELS
        or not isinstance(chips, list)
        or not all(isinstance(one, str) and len(one) <= 20 for one in chips)
    ):
        words = "、".join(LEVELS)
        raise BadRow(
            Text(f"support 须有 level（{words}）与 chips。", f"support has level ({', '.join(LEVELS)}) and chips.")
        )
    context, text = value.get("context"), str(value.get("text", ""))[:300]
    return Support(value["level"], tuple(chips), str(context)[:20] if context else None, text)


def _quants(value: Any) -> tuple[Quant, ...]:
    wrong = BadRow(Text("quant 的每项须有 type，如 w8a8。", "each of quant has a type such as w8a8."))
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 40:
        raise wrong
    found = []
    for one in value:
        kind = one.get("type") if isinstance(one, dict) else None
        if not isinstance(kind, str) or not TYPE.fullmatch(kind):
            raise wrong
        found.append(Quant(kind, one.get("one_click") is True, str(one.get("only", ""))[:40]))
    return tuple(found)


def _notes(value: Any) -> Text:
    if value is None:
        return Text("", "")
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) and len(one) <= 1000 for one in value):
        return Text(*value)
    raise BadRow(Text("notes 须为中英文两段文字。", "notes holds two texts, Chinese and English."))


def plain(name: str) -> str:
    """A model's name without what people write differently."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
