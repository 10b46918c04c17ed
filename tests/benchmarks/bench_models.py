"""Reading a model of 200 shards: headers beside the plainest way to read the same, digests beside sha256sum.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_models`. Ratios of the same run hold on any machine.
"""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deployments.artifacts import digests
from deployments.artifacts.read import read

SHARDS, TENSORS = 200, 270  # DeepSeek-R1 has 163 shards with up to 560 tensors
DIGESTED_MB, REPEATS = 512, 5
BUDGET_S, LEAST_SHARE = 2.0, 0.9


def make(folder: Path) -> Path:
    """A whole model of sparse files: 700 GB to look at, a few MB on the disk."""
    folder.mkdir()
    placed: dict[str, str] = {}
    rows, columns = 2048, 3240
    size = rows * columns * 2
    for n in range(SHARDS):
        name = f"model-{n + 1:05}-of-{SHARDS:05}.safetensors"
        names = [f"model.layers.{n}.mlp.experts.{i}.up_proj.weight" for i in range(TENSORS)]
        header = {
            one: {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [i * size, (i + 1) * size]}
            for i, one in enumerate(names)
        }
        text = json.dumps(header).encode()
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + TENSORS * size)
        placed |= dict.fromkeys(names, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    (folder / "config.json").write_text(json.dumps({"architectures": ["X"], "model_type": "x"}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def plainly(folder: Path) -> int:
    """The least that anyone has to do for the same: parse each header and the index, read three blocks of each file."""
    numbers = 0
    json.loads((folder / "model.safetensors.index.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
            found = hashlib.sha256()
            for at in (8 + length, path.stat().st_size // 2, path.stat().st_size - 4096):
                file.seek(at)
                found.update(file.read(4096))
        numbers += len(header)
    return numbers


def best(call: Callable[[], object], repeats: int = REPEATS) -> float:
    times = []
    for _n in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def headers(folder: Path) -> None:
    model = read(folder)
    assert model.whole and model.shards == SHARDS, model.problems
    assert plainly(folder) == SHARDS * TENSORS
    ours, plain = best(lambda: read(folder)), best(lambda: plainly(folder))
    print(
        f"model of {SHARDS} shards, {model.bytes / 1e9:.0f} GB: {ours:.2f} s (budget {BUDGET_S} s), "
        f"the plainest reader {plain:.2f} s, ratio {ours / plain:.1f}"
    )


def digested(folder: Path) -> None:
    folder.mkdir()
    block = os.urandom(1 << 20)
    for n in range(4):
        with (folder / f"{n}.safetensors").open("wb") as file:
            for _mb in range(DIGESTED_MB // 4):
                file.write(block)
    paths = [str(path) for path in sorted(folder.iterdir())]
    told = subprocess.run(["sha256sum", *paths], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in told.splitlines()] == [
        row.sha256 for _name, row in sorted(digests.make(folder).files.items())
    ]
    plain = best(lambda: subprocess.run(["sha256sum", *paths], capture_output=True, check=True), 3)
    ours = best(lambda: digests.make(folder), 3)
    print(
        f"digests of {DIGESTED_MB} MB: {DIGESTED_MB / ours:.0f} MB/s, sha256sum {DIGESTED_MB / plain:.0f} MB/s, "
        f"share {plain / ours:.2f} (at least {LEAST_SHARE})"
    )


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="bench-models-"))
    try:
        headers(make(folder / "model"))
        digested(folder / "digested")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
