"""`manage.py parse npu-smi-info [FILE]`: read a tool's output and print the reading as JSON."""

import json
import sys
from argparse import ArgumentParser
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.language import is_chinese, pick
from monitoring import parsers
from monitoring.parsers import failures

MAX_BYTES = 4 * parsers.MAX_CHARS  # what so many characters take at most; more is not read from a pipe without end

NO_NAME = (
    "未指定解析器。请从 parse --list 中选择一个名称。",
    "No parser was named. Choose one from parse --list.",
)
UNKNOWN = (
    "没有名为 {name} 的解析器。请从 parse --list 中选择一个名称。",
    "There is no parser called {name}. Choose one from parse --list.",
)
NO_FILE = (
    "无法读取 {path}：{reason}。请检查路径与权限。",
    "{path} cannot be read: {reason}. Check the path and its permissions.",
)
NOT_TEXT = (
    "{path} 不是 UTF-8 文本。请保存工具的原始输出后重试。",
    "{path} is not UTF-8 text. Save the tool's own output and try again.",
)


def said(sentence: tuple[str, str], **words: object) -> str:
    """One of our sentences in the language of the session."""
    return pick(sentence).format(**words)


class Command(BaseCommand):
    help = "Read the output of a tool (npu-smi, hccn_tool, lscpu, ...) and print the reading as JSON."
    requires_system_checks = []  # neither the database nor a URL is needed

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="a parser, for example npu-smi-info")
        parser.add_argument("file", nargs="?", default="-", help="the text to read, standard input by default")
        parser.add_argument("--list", action="store_true", help="print the names of all parsers")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            self.stdout.write("\n".join(parsers.names()))
            return
        if not options["name"]:
            raise CommandError(said(NO_NAME))
        try:
            parser = parsers.load(options["name"])
        except parsers.UnknownParser:
            raise CommandError(said(UNKNOWN, name=options["name"])) from None
        try:
            reading = parser.parse(text_of(options["file"]))
        except parsers.ParseError as refusal:
            raise CommandError(failures.sentences(refusal.meaning, chinese=is_chinese())) from None
        self.stdout.write(json.dumps(reading.as_json(), indent=1, ensure_ascii=False))
        if isinstance(reading, failures.Unreadable):
            self.stderr.write(failures.sentences(reading.meaning, chinese=is_chinese()))


def text_of(path: str) -> str:
    """The text of a file, of standard input for "-"; a longer one is cut where the parser refuses it anyway."""
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise CommandError(said(NO_FILE, path=path, reason=problem.strerror)) from None
    try:
        return raw[:MAX_BYTES].decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if len(raw) > MAX_BYTES and problem.end == MAX_BYTES:  # the limit fell into a character
            return raw[: problem.start].decode("utf-8-sig")
        raise CommandError(said(NOT_TEXT, path=path)) from None
