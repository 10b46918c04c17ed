"""Read a model's folder: what it is, how large, and whether it is whole. Headers and a few blocks, never all of it.

`fingerprint` names the content wherever it lies: made of config.json, the description of a quantized model, and of
each file of weights its name, size, header and three blocks of 4 kB. It is no digest: digests.py makes those.
"""

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from deployments.artifacts import BadModel, config
from deployments.artifacts.files import Found, files_of, unreadable
from deployments.artifacts.tensors import Header, header, open_regular
from deployments.steps import Text

DESCRIPTION = "quant_model_description.json"
ADAPTER = "adapter_config.json"
GRAPHS = {".om": "om", ".mindir": "mindir", ".onnx": "onnx", ".air": "air"}
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
HALF = (".incomplete", ".part", ".aria2", ".tmp", ".crdownload", ".download")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model", "vocab.txt", "spiece.model")
QUANT_PARTS = ("_scale", "_offset", "scale", "offset", "quant_bias", "scale_bias", "scale_inv", "_second")
BLOCK, READERS, MOST_PROBLEMS, MOST_DTYPES = 4096, 8, 50, 20


class Problem(NamedTuple):
    """`code` is stable. A `missing` file can be brought; other problems need the model anew."""

    code: str
    text: Text
    missing: bool = False


@dataclass(frozen=True)
class Model:
    """What a folder holds. `bytes` of all files; `parameters` is None where the weights do not tell."""

    path: str
    name: str
    format: str  # hf | quantized | adapter | om | mindir | onnx | air | unknown
    bytes: int
    files: int
    fingerprint: str
    architecture: str = ""
    model_type: str = ""
    dtype: str = ""
    parameters: int | None = None
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
    tied: bool = False
    quant_type: str = ""  # as its description or config has it, in capitals: W8A8, FP8, AWQ
    shards: int = 0
    weight_bytes: int = 0
    dtypes: dict[str, int] = field(default_factory=dict)  # bytes of weights by type, as the format names it
    remote_code: bool = False
    pickles: tuple[str, ...] = ()
    tokenizer: bool = False
    problems: tuple[Problem, ...] = field(default=())

    @property
    def whole(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """Of a size that can be cut to travel: at most 50 problems and pickles, and 20 types."""
        made = asdict(self)
        made["dtypes"] = {name[:20]: size for name, size in list(self.dtypes.items())[:MOST_DTYPES]}
        made["pickles"] = [name[:200] for name in self.pickles[:MOST_PROBLEMS]]
        shown = self.problems[:MOST_PROBLEMS]
        made["problems"] = [[one.code, [words[:200] for words in one.text], one.missing] for one in shown]
        return made


def read(folder: Path) -> Model:
    """Raises BadModel where there is no folder that can be read, or nothing of a model in it."""
    if not folder.is_dir():
        raise unreadable(folder, OSError(*_why_no_folder(folder)))
    files = files_of(folder)
    sizes = {one.name: one.size for one in files}
    if "config.json" not in sizes:
        return _without_config(folder, files)
    shape = config.shape(config.read_json(folder / "config.json"))
    weights = [name for name in sizes if name.endswith(".safetensors") and "/" not in name]
    headers, problems = _headers(folder, weights)
    dtypes = _dtypes(headers.values())
    described = config.read_json(folder / DESCRIPTION) if DESCRIPTION in sizes else {}
    problems += _of_index(folder, sizes, headers)
    problems += _of_files(sizes, shape, weights)
    quant_type = _quant_type(described) or shape.quant_method.upper()
    return Model(
        path=str(folder),
        name=folder.name,
        format="quantized" if described else "hf",
        bytes=sum(sizes.values()),
        files=len(files),
        fingerprint=_fingerprint(folder, weights, headers),
        parameters=None if quant_type.startswith("W4") else _parameters(headers.values()),
        dtype=max(dtypes, key=lambda name: dtypes[name]) if dtypes else shape.dtype,
        dtypes=dtypes,
        quant_type=quant_type,
        shards=len(weights),
        weight_bytes=sum(sizes[name] for name in weights),
        remote_code=bool(shape.code_files),
        pickles=_pickles(sizes),
        tokenizer=any(name in sizes for name in TOKENIZERS),
        problems=tuple(problems),
        **{name: value for name, value in shape._asdict().items() if name in SHARED},
    )


SHARED = {
    "architecture", "model_type", "layers", "hidden", "heads", "kv_heads", "head_dim", "kv_lora_rank",
    "qk_rope_head_dim", "vocab", "max_position", "experts", "tied",
}  # fmt: skip


def _why_no_folder(folder: Path) -> tuple[int, str]:
    try:
        folder.stat()
    except OSError as error:
        return error.errno or 0, error.strerror or ""
    return 20, "Not a directory"


def _without_config(folder: Path, files: list[Found]) -> Model:
    """A graph for another runtime or an adapter. Raises BadModel where it is neither."""
    kinds = {GRAPHS[suffix] for one in files if (suffix := PurePosixPath(one.name).suffix.lower()) in GRAPHS}
    names = {one.name for one in files}
    if ADAPTER in names:
        kinds = {"adapter"}
    if not kinds:
        raise BadModel(
            Text(
                f"{folder} 里没有 config.json，不是模型目录。请选择含有 config.json 的目录，或把模型下载完整。",
                f"{folder} holds no config.json, so it is no model's folder. Choose the one that holds it, or download "
                "the model whole.",
            )
        )
    weights = [one.name for one in files if PurePosixPath(one.name).suffix.lower() in (*GRAPHS, ".safetensors")]
    return Model(
        path=str(folder),
        name=folder.name,
        format=sorted(kinds)[0],
        bytes=sum(one.size for one in files),
        files=len(files),
        fingerprint=_fingerprint(folder, weights, {}),
        pickles=_pickles({one.name: one.size for one in files}),
    )


def _headers(folder: Path, names: list[str]) -> tuple[dict[str, Header], list[Problem]]:
    """The headers by file, and what is wrong with the others."""
    found: dict[str, Header] = {}
    problems = []
    with ThreadPoolExecutor(READERS) as pool:  # storage on a network answers slowly, and several at once
        for name, answer in zip(names, pool.map(lambda name: _header(folder / name), names), strict=True):
            if isinstance(answer, BadModel):
                problems.append(Problem("damaged", answer.text))
            else:
                found[name] = answer
    return found, problems


def _header(path: Path) -> Header | BadModel:
    try:
        return header(path)
    except BadModel as error:
        return error


def _of_index(folder: Path, sizes: dict[str, int], headers: dict[str, Header]) -> list[Problem]:
    """What the index of shards names, and is not there."""
    indexes = [name for name in sizes if name.endswith(".safetensors.index.json") and "/" not in name]
    problems = []
    for index in indexes:
        try:
            listed = config.read_json(folder / index).get("weight_map")
        except BadModel as error:
            problems.append(Problem("bad_index", error.text))
            continue
        if not isinstance(listed, dict) or not all(isinstance(one, str) for one in listed.values()):
            words = Text(f"{index} 没有 weight_map。", f"{index} has no weight_map.")
            problems.append(Problem("bad_index", words))
            continue
        problems += _of_map(listed, sizes, headers)
    return problems


def _of_map(listed: dict[str, str], sizes: dict[str, int], headers: dict[str, Header]) -> list[Problem]:
    shards = sorted(set(listed.values()))
    gone = [name for name in shards if name not in sizes]
    problems = [
        Problem("missing_shard", Text(f"缺少分片 {name}。", f"The shard {name} is missing."), missing=True)
        for name in gone
    ]
    lost = [name for name, shard in listed.items() if shard in headers and name not in headers[shard].tensors]
    if lost:
        words = Text(
            f"{len(lost)} 个张量不在索引所说的分片里，如 {lost[0][:120]}。",
            f"{len(lost)} tensors are not in the shard that the index names, {lost[0][:120]} for one.",
        )
        problems.append(Problem("index_mismatch", words))
    return problems


def _of_files(sizes: dict[str, int], shape: config.Shape, weights: list[str]) -> list[Problem]:
    found = []
    half = sorted(name for name in sizes if name.endswith(HALF))
    if half:
        words = Text(f"{half[0]} 还没有下载完。", f"{half[0]} is only half downloaded.")
        found.append(Problem("half", words, missing=True))
    if not weights:
        pickled = bool(_pickles(sizes))
        words = Text("没有 safetensors 权重", "There are no weights as safetensors")
        more = Text("，只有 pickle 文件（.bin/.pt）。", ", only pickles (.bin, .pt).") if pickled else Text("。", ".")
        found.append(
            Problem("only_pickles" if pickled else "no_weights", Text(words.zh + more.zh, words.en + more.en), True)
        )
    empty = [name for name in weights if sizes[name] == 0]
    found += [Problem("empty", Text(f"{name} 是空文件。", f"{name} is empty."), True) for name in empty]
    if not any(name in sizes for name in TOKENIZERS):
        words = Text("没有分词器文件（tokenizer.json 等）。", "There is no tokenizer (tokenizer.json or the like).")
        found.append(Problem("no_tokenizer", words, missing=True))
    for name in shape.code_files:
        if name not in sizes:
            words = Text(f"config.json 需要 {name}，而它不在。", f"config.json asks for {name}, which is not there.")
            found.append(Problem("no_code", words, missing=True))
    return found


def _pickles(sizes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in sizes if name.lower().endswith(PICKLES) and name != "training_args.bin"))


def _quant_type(described: dict[str, Any]) -> str:
    value = described.get("model_quant_type")
    return value[:40].upper() if isinstance(value, str) else ("UNKNOWN" if described else "")


def is_weight(name: str) -> bool:
    """Whether a tensor holds numbers of the model, not what a quantizer has put beside them."""
    return not name.endswith(QUANT_PARTS)


def _parameters(headers: Iterable[Header]) -> int | None:
    counts = [tensor.numbers for one in headers for name, tensor in one.tensors.items() if is_weight(name)]
    return sum(counts) if counts else None


def _dtypes(headers: Iterable[Header]) -> dict[str, int]:
    """Bytes of each type, as the format names it: BF16, F16, F32, I8, F8_E4M3."""
    amounts: dict[str, int] = {}
    for one in headers:
        for tensor in one.tensors.values():
            amounts[tensor.dtype] = amounts.get(tensor.dtype, 0) + tensor.end - tensor.begin
    return amounts


def _fingerprint(folder: Path, weights: list[str], headers: dict[str, Header]) -> str:
    made = hashlib.sha256()
    for name in ("config.json", DESCRIPTION, ADAPTER):
        if (data := _begin(folder / name)) is not None:
            made.update(name.encode() + hashlib.sha256(data).digest())
    with ThreadPoolExecutor(READERS) as pool:
        read = pool.map(lambda name: _blocks(folder / name, headers.get(name)), sorted(weights))
        for name, part in zip(sorted(weights), read, strict=True):
            made.update(name.encode(errors="surrogateescape") + b"\0" + part)
    return made.hexdigest()


def _begin(path: Path) -> bytes | None:
    """What a file holds, of one that is larger than any JSON of a model its begin; None where it is no file."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(config.MOST_BYTES)
    except OSError:
        return None


def _blocks(path: Path, known: Header | None) -> bytes:
    """A digest of a file's size, header, and blocks at the begin, in the middle and at the end of its numbers."""
    found = hashlib.sha256()
    try:
        descriptor = open_regular(path)
    except OSError:
        return found.digest()
    try:
        size, start = os.fstat(descriptor).st_size, known.data_from if known else 0
        found.update(str(size).encode() + b"\0" + (known.raw if known else b""))
        for at in (start, (start + size) // 2, max(start, size - BLOCK)):
            found.update(os.pread(descriptor, BLOCK, at))
    finally:
        os.close(descriptor)
    return found.digest()
