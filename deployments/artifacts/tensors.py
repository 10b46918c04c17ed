"""The header of a .safetensors file: names, types and places of its tensors, without their numbers.

The format: 8 bytes length (little endian), that many bytes of JSON, then the numbers, one tensor behind the other.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from deployments.artifacts import BadModel
from deployments.steps import Text

MOST_HEADER = 100_000_000  # what the format's own library takes
MOST_DIMENSIONS, MOST_LENGTH = 64, 1 << 63  # torch has fewer; the product of a million lengths would take for ever
# Bits of one number.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


class Tensor(NamedTuple):
    """`begin` and `end` are bytes behind the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        found = 1
        for length in self.shape:
            found *= length
        return found


class Header(NamedTuple):
    """`data_from` is where the numbers begin, `size` the length of the whole file in bytes."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    data_from: int
    size: int
    raw: bytes


def open_regular(path: Path) -> int:
    """A descriptor of a file that is one: a pipe or device would hang or do harm. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(22, "no regular file", str(path))
    return descriptor


def header(path: Path) -> Header:
    """Raises BadModel where the file is no whole .safetensors file."""
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise bad(path, f"无法打开（{error.strerror}）", f"it cannot be opened ({error.strerror})") from error
    try:
        size = os.fstat(descriptor).st_size
        length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
        if size < 8 or length > min(MOST_HEADER, size - 8):
            raise bad(path, "被截断，或不是 safetensors", "it is cut off, or no safetensors file")
        raw = os.pread(descriptor, length, 8)
    except OSError as error:
        raise bad(path, f"读取失败（{error.strerror}）", f"it cannot be read ({error.strerror})") from error
    finally:
        os.close(descriptor)
    tensors, metadata = _parsed(path, raw)
    _check_places(path, tensors, size - 8 - length)
    return Header(tensors, metadata, 8 + length, size, raw)


def _parsed(path: Path, raw: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise bad(path, "文件头不是 JSON", "its header is no JSON") from error
    if not isinstance(data, dict):
        raise bad(path, "文件头不是对象", "its header is no object")
    metadata = data.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict):
        raise bad(path, "__metadata__ 不是对象", "its __metadata__ is no object")
    try:
        return {name: _tensor(row) for name, row in data.items()}, metadata
    except (TypeError, ValueError, KeyError) as error:
        raise bad(path, "文件头里有看不懂的张量", "its header describes a tensor that makes no sense") from error


def _tensor(row: Any) -> Tensor:
    """Raises TypeError, ValueError or KeyError."""
    begin, end = row["data_offsets"]
    if len(row["shape"]) > MOST_DIMENSIONS:
        raise ValueError("shape")
    made = Tensor(row["dtype"], tuple(row["shape"]), begin, end)
    numbers = (*made.shape, begin, end)
    if not isinstance(made.dtype, str) or not all(type(n) is int and 0 <= n < MOST_LENGTH for n in numbers):
        raise ValueError(row)
    bits = BITS.get(made.dtype)
    if bits is not None and (made.numbers * bits + 7) // 8 != end - begin:
        raise ValueError(row)
    return made


def _check_places(path: Path, tensors: dict[str, Tensor], data_bytes: int) -> None:
    """The tensors lie one behind the other, from the first byte to the last."""
    at = 0
    for tensor in sorted(tensors.values(), key=lambda one: (one.begin, one.end)):
        if tensor.begin != at or tensor.end < tensor.begin:
            raise bad(path, "张量的位置重叠或有空洞", "its tensors overlap or leave a hole")
        at = tensor.end
    if at > data_bytes:
        raise bad(path, f"被截断：少 {at - data_bytes} 字节", f"it is cut off: {at - data_bytes} bytes are missing")
    if at < data_bytes:
        raise bad(path, "末尾有多余的字节", "there are bytes behind its last tensor")


def bad(path: Path, zh: str, en: str) -> BadModel:
    return BadModel(
        Text(
            f"{path.name} 损坏：{zh}。请重新下载或复制这个文件。",
            f"{path.name} is damaged: {en}. Download or copy that file again.",
        )
    )
