"""The prompts that two models answer: the bundled set, a file on the server, or lines that somebody has pasted.

A set is JSON lines: each a text, or an object with `prompt` and, where wanted, `id`, `lang` (zh or en), `kind` and
`reference`, a good answer, with which the perplexity of prompt and answer is taken.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deployments.steps import Text

BUNDLED = Path(__file__).with_name("prompts_zh_en.json")
MOST_PROMPTS = 500
MOST_CHARACTERS = 8000  # of a prompt, and of its reference
MOST_BYTES = 4 * 1024 * 1024  # of a set
LANGUAGES = ("zh", "en")
FIELDS = {"id", "lang", "kind", "prompt", "reference"}
CHINESE_FROM = 0.2  # share of Chinese letters from which a prompt counts as Chinese


class BadPrompts(ValueError):
    """A set that cannot be asked; `text` names the line and says what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


@dataclass(frozen=True)
class Prompt:
    id: str
    lang: str
    kind: str
    prompt: str
    reference: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def bundled() -> list[Prompt]:
    return [Prompt(**row) for row in json.loads(BUNDLED.read_text(encoding="utf-8"))]


def read(path: Path) -> list[Prompt]:
    """The set of a file. Raises BadPrompts."""
    try:
        if not path.is_file():  # a pipe would hold us for ever
            raise FileNotFoundError
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadPrompts(
            Text(
                f"无法读取提示词文件 {path}（{error.strerror or '没有这个文件'}）。请检查路径和权限，再重试。",
                f"The file of prompts {path} cannot be read ({error.strerror or 'there is no such file'}). "
                "Check the path and its rights, then try again.",
            )
        ) from error
    if len(data) > MOST_BYTES:
        raise BadPrompts(too_large())
    try:
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadPrompts(_at(line, Text("不是 UTF-8 文本", "is no UTF-8 text"))) from error


def parse(text: str) -> list[Prompt]:
    """The set of such lines, empty ones left out. Raises BadPrompts."""
    if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise BadPrompts(too_large())
    found: list[Prompt] = []
    seen: set[str] = set()
    for number, line in _lines(text):
        if len(found) == MOST_PROMPTS:
            raise BadPrompts(
                Text(
                    f"提示词超过 {MOST_PROMPTS} 条。请减少条数，再重试。",
                    f"There are more than {MOST_PROMPTS} prompts. Leave some out, then try again.",
                )
            )
        prompt = _prompt(number, _value(number, line))
        if prompt.id in seen:
            raise BadPrompts(_at(number, Text(f"id “{prompt.id}” 重复", f"has the id “{prompt.id}” a second time")))
        seen.add(prompt.id)
        found.append(prompt)
    if not found:
        raise BadPrompts(Text("没有任何提示词。请每行写一条。", "There are no prompts. Write one on each line."))
    return found


def too_large() -> Text:
    size = MOST_BYTES // 1024 // 1024
    return Text(
        f"提示词超过 {size} MiB。请减少内容，再重试。",
        f"The prompts are larger than {size} MiB. Make them fewer, then try again.",
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def _value(number: int, line: str) -> Any:
    """The JSON of a line; a line that does not begin like JSON is a prompt as it stands."""
    if line[0] not in '{["':
        return line
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPrompts(_at(number, Text("不是有效的 JSON", "is no valid JSON"))) from error


def _prompt(number: int, value: Any) -> Prompt:
    row = {"prompt": value} if isinstance(value, str) else value
    if not isinstance(row, dict) or not all(isinstance(one, str) for one in row.values()):
        what = Text("须为一段文字，或只含文字的对象", "must be a text, or an object that holds texts only")
        raise BadPrompts(_at(number, what))
    if strange := sorted(set(row) - FIELDS):
        name = strange[0][:40]
        known = ", ".join(sorted(FIELDS))
        raise BadPrompts(_at(number, Text(f"有不认识的“{name}”；可用：{known}", f"has “{name}”; known are {known}")))
    for name in ("prompt", "reference"):
        if len(row.get(name, "")) > MOST_CHARACTERS:
            most = Text(f"的 {name} 超过 {MOST_CHARACTERS} 个字", f"has a {name} above {MOST_CHARACTERS} characters")
            raise BadPrompts(_at(number, most))
    if not row.get("prompt", "").strip():
        raise BadPrompts(_at(number, Text("没有提示词", "has no prompt")))
    if any("\ud800" <= sign <= "\udfff" or sign == "\0" for text in row.values() for sign in text):
        raise BadPrompts(_at(number, Text("含有无法发送的字符", "holds characters that cannot be sent")))
    lang = row.get("lang") or language(row["prompt"])
    if lang not in LANGUAGES:
        raise BadPrompts(_at(number, Text("的 lang 须为 zh 或 en", "must have zh or en for its lang")))
    return Prompt(
        (row.get("id") or f"line-{number}")[:60], lang, row.get("kind", "")[:40], row["prompt"],
        row.get("reference", ""),
    )  # fmt: skip


def language(text: str) -> str:
    """zh where enough of the letters are Chinese, else en."""
    letters = [sign for sign in text if sign.isalpha()]
    chinese = sum(1 for sign in letters if is_chinese(sign))
    return "zh" if letters and chinese >= CHINESE_FROM * len(letters) else "en"


def is_chinese(sign: str) -> bool:
    return "\u3400" <= sign <= "\u9fff" or "\U00020000" <= sign <= "\U0003134f"


def _at(line: int, what: Text) -> Text:
    return Text(
        f"提示词第 {line} 行{what.zh}。请改正这一行，再重试。",
        f"Line {line} of the prompts {what.en}. Correct that line, then try again.",
    )
