"""Readers of tool output: text in, readings out.

The folder is the list: each module here without a leading underscore is one
parser. It has ``COMMAND`` (the argument list that prints such text, or the
files that hold it) and ``parse(text)``, which returns a reading with
``as_json()``, returns ``failures.Unreadable`` where the tool says why it
cannot answer, and raises ``ParseError`` for every other text.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

MAX_CHARS = 2_000_000  # of one text; a longer one is refused, see _text.py


class ParseError(Exception):
    """No parser understands the text; ``meaning`` is a key of ``failures.MEANINGS``."""

    def __init__(self, meaning: str) -> None:
        super().__init__(meaning)
        self.meaning = meaning


class UnknownParser(LookupError):
    """There is no parser of that name."""


def names() -> list[str]:
    """Names of all parsers in alphabetical order, as the command line spells them: ``npu-smi-info``."""
    folder = Path(__file__).parent
    return sorted(file.stem.replace("_", "-") for file in folder.glob("*.py") if not file.stem.startswith("_"))


def load(name: str) -> ModuleType:
    """The module of one parser, named with dashes or underscores. Raises UnknownParser."""
    dashed = name.replace("_", "-")
    if dashed not in names():
        raise UnknownParser(name)
    return import_module(f"{__name__}.{dashed.replace('-', '_')}")
