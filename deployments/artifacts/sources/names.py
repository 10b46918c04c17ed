"""Which files of a source are taken. Names are another machine's words: only those that stay inside are used."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deployments.artifacts import BadModel
from deployments.artifacts.files import DEEPEST, MOST_FILES, SKIPPED
from deployments.artifacts.read import PICKLES
from deployments.artifacts.sources import File
from deployments.steps import Text

OWN = ".halves"  # of fetch.py
CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\ud800-\udfff\\]")
DEVICES = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))}
WEIGHTS = (".safetensors", ".gguf", ".om", ".mindir", ".onnx", ".air")
MOST_PART, MOST_NAME, SHOWN = 255, 600, 200


class Chosen(NamedTuple):
    """`left` are those that are not taken, with why: pickle | pattern | own."""

    files: list[File]
    left: list[tuple[str, str]]

    @property
    def bytes(self) -> int:
        return sum(file.size or 0 for file in self.files)

    @property
    def of_unknown_size(self) -> int:
        return sum(file.size is None for file in self.files)


def problem(name: str) -> str:
    """Why a file may not have that name, '' where it may."""
    parts = name.split("/")
    if not name or len(name) > MOST_NAME or CONTROL.search(name):
        return "empty, too long, or with a backslash or control character"
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "it leads out of the folder"
    if any(len(part.encode(errors="surrogateescape")) > MOST_PART for part in parts) or len(parts) > DEEPEST + 1:
        return "a part is too long, or it lies too deep"
    if any(part.partition(".")[0].rstrip(" ").lower() in DEVICES for part in parts):
        return "the name of a device"
    if re.match(r"[A-Za-z]:", name):
        return "the name of a drive"
    return ""


def is_pickle(name: str) -> bool:
    """Whether loading the file would run what stands in it."""
    return name.lower().endswith(PICKLES)


def choose(
    files: Iterable[File], *, only: Sequence[str] = (), leave_out: Sequence[str] = (), pickles: bool = False
) -> Chosen:
    """Raises BadModel for names that lead outside, for two of one name, and where nothing of a model is left."""
    taken: list[File] = []
    left: list[tuple[str, str]] = []
    for file in files:
        if why := problem(file.name):
            raise _bad_name(file.name, why)
        if file.name.split("/")[0] in {OWN, *SKIPPED} or file.name == ".gitattributes":
            left.append((file.name, "own"))
        elif _matches(file.name, leave_out) or (only and not _matches(file.name, only)):
            left.append((file.name, "pattern"))
        elif is_pickle(file.name) and not pickles:
            left.append((file.name, "pickle"))
        else:
            taken.append(file)
    _check_apart([file.name for file in taken])
    _check_some(taken, left)
    return Chosen(sorted(taken, key=lambda file: file.name), left)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, one) or fnmatch.fnmatchcase(name.rpartition("/")[2], one) for one in patterns)


def _bad_name(name: str, why: str) -> BadModel:
    shown = name[:SHOWN].encode("unicode_escape").decode()
    return BadModel(
        Text(
            f"来源列出的文件名“{shown}”不可用，因此没有下载任何文件。请检查来源地址。",
            f"The source lists a file that may not be called “{shown}” ({why}), so nothing was fetched. Look at the "
            "source's address.",
        )
    )


def _check_apart(names: list[str]) -> None:
    """Raises BadModel where one name is given twice, or is a folder of another."""
    seen = set(names)
    folders = {"/".join(name.split("/")[:n]) for name in names for n in range(1, name.count("/") + 1)}
    if len(seen) < len(names) or seen & folders:
        twice = next((name for name in names if names.count(name) > 1 or name in folders), "")
        raise _bad_name(twice, "two of that name")
    if len(names) > MOST_FILES:
        raise BadModel(
            Text(
                f"来源有超过 {MOST_FILES} 个文件。请用“只要”选出需要的。",
                f"The source has more than {MOST_FILES} files. Choose those that are needed by “Only”.",
            )
        )


def _check_some(taken: list[File], left: list[tuple[str, str]]) -> None:
    """Raises BadModel where no weights are left because they are pickles, or there is nothing at all."""
    pickles = [name for name, why in left if why == "pickle" and name.rpartition("/")[2] != "training_args.bin"]
    if pickles and not any(file.name.lower().endswith(WEIGHTS) for file in taken):
        raise BadModel(
            Text(
                f"权重只有 pickle 文件（{pickles[0][:SHOWN]} 等 {len(pickles)} 个），加载它们会执行其中的代码。"
                "请换一个有 safetensors 的模型；若信任来源，可勾选“也要 pickle 文件”。",
                f"The weights are pickles only ({pickles[0][:SHOWN]}, {len(pickles)} in all), and loading one runs "
                "what stands in it. Choose a model with safetensors, or tick “Pickles, too” if you trust the source.",
            )
        )
    if not taken:
        raise BadModel(
            Text(
                "来源没有可下载的文件。请检查地址、版本和筛选。",
                "The source has no file to fetch. Look at the address, the revision and the patterns.",
            )
        )
