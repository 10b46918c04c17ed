"""An environment that stands for msModelSlim's: a Python with a package of two recipes, and a tool that does what a
file beside it says. The recipes are read for real; the numbers that it writes are none."""

import json
import sys
from pathlib import Path

# Recipes here are JSON, which is YAML as well, so that no library for it is needed.
YAML = "import json\nsafe_load = json.loads\n\n\ndef safe_dump(data, **_more):\n    return json.dumps(data)\n"
ADAPTER = "class Adapter:\n    def get_model_pedigree(self) -> str:\n        return '{}'\n"
TOOL = '''#!{python}
"""Stands for the command: `mode` says what goes wrong."""
import json, os, pathlib, struct, sys, time
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
mode = pathlib.Path({mode!r}).read_text()
pathlib.Path({mode!r} + ".asked").write_text(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}))
out = pathlib.Path(words["--save_path"])
out.mkdir(exist_ok=True)
if mode == "asks":
    print("No recipe fits(Enter y to continue, otherwise it will exit): ", end="", flush=True)
    input()
if mode == "hangs":
    print("it hangs", flush=True)
    time.sleep(600)
if mode == "fills":
    with (out / "quant_model_weights.safetensors").open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
if mode == "killed":
    os.kill(os.getpid(), 9)
if mode.startswith("says "):
    print(mode[5:], file=sys.stderr)
    sys.exit(1)
source = pathlib.Path(words["--model_path"])
for n in range(3):
    print(f'Run processor LinearQuantProcessor for "model.layers.{{n}}"', flush=True)
if mode == "full":
    (out / "half.safetensors").write_bytes(b"x" * 1000)
    print("OSError: [Errno 28] No space left on device", file=sys.stderr)
    sys.exit(1)
exec(pathlib.Path({mode!r} + ".py").read_text())
write(source, out, mode)
print("===========SUCCESS===========")
'''
# How the tool writes what it has quantized: each projection as int8 with its scales, the rest as it was.
WRITE = """
def header(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    rows = json.loads(raw[8 : 8 + size])
    rows.pop("__metadata__", None)
    return rows, raw[8 + size :]

def write(source, out, mode):
    described = {"model_quant_type": "W8A8_DYNAMIC", "version": "1.0.0"}
    made, data = {}, b""
    def put(name, dtype, shape, numbers, kind):
        nonlocal data
        made[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        described[name] = kind
        data += numbers
    for file in sorted(source.glob("*.safetensors")):
        rows, numbers = header(file)
        for name, row in rows.items():
            begin, end = row["data_offsets"]
            if not name.endswith("_proj.weight"):
                put(name, row["dtype"], row["shape"], numbers[begin:end], "FLOAT")
                continue
            base, (high, wide) = name.removesuffix("weight"), row["shape"]
            put(name, "I8", row["shape"], bytes(high * wide), "W8A8_DYNAMIC")
            scale = struct.pack("<f", 0.5) * high
            if mode == "nan":
                scale = struct.pack("<f", float("nan")) * high
            if mode != "no_scale":
                put(base + "weight_scale", "F32", [high, 1], scale, "W8A8_DYNAMIC")
            put(base + "weight_offset", "F32", [high, 1], bytes(4 * high), "W8A8_DYNAMIC")
    if mode == "lost":
        gone = next(name for name in made if name.endswith("_proj.weight"))
        described.pop(gone)
        made[gone + ".renamed"] = made.pop(gone)
        described[gone + ".renamed"] = "FLOAT"
    text = json.dumps(made).encode()
    text += b" " * (-len(text) % 8)
    (out / "quant_model_weights.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    if mode == "cut":
        path = out / "quant_model_weights.safetensors"
        path.write_bytes(path.read_bytes()[:-10])
    if mode != "undescribed":
        (out / "quant_model_description.json").write_text(json.dumps(described))
    for name in ("config.json", "tokenizer.json"):
        (out / name).write_bytes((source / name).read_bytes())
    if mode == "touches_source":
        (source / "config.json").write_text((source / "config.json").read_text() + " ")
"""


class Tool:
    """`home` is the environment; `mode(…)` says what the next run does, `asked` how it was called."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "tools"
        self._mode = self.home / "mode"
        site = self.home / "site"
        package = site / "msmodelslim"
        for family in ("tiny", "default"):
            (package / "model" / family).mkdir(parents=True)
            (package / "model" / family / "model_adapter.py").write_text(ADAPTER.format(family))
            (package / "lab_practice" / family).mkdir(parents=True)
        (site / "yaml.py").write_text(YAML)
        (package / "__init__.py").write_text("raise SystemExit('it must not be imported')\n")
        self.recipe("tiny", "tiny-w8a8", 8, 8, models="Tiny-1B")
        self.recipe("default", "default-w8a16", 8, 16)
        calib = package / "lab_calib"
        calib.mkdir()
        (calib / "mix_calib.jsonl").write_text(json.dumps({"inputs_pretokenized": "One and one is two."}) + "\n")
        self._installed(site, package)
        bin_ = self.home / "bin"
        bin_.mkdir()
        python = bin_ / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
        tool = bin_ / "msmodelslim"
        tool.write_text(TOOL.format(python=sys.executable, mode=str(self._mode)))
        python.chmod(0o755)
        tool.chmod(0o755)
        (self.home / "mode.py").write_text(WRITE)
        self.mode("good")

    def _installed(self, site: Path, package: Path) -> None:
        info = site / "msmodelslim-99.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: msmodelslim\nVersion: 99.1\n")
        (info / "entry_points.txt").write_text(
            "[msmodelslim.model_adapter.plugins]\nTiny-1B = msmodelslim.model.tiny.loader:Loader\n"
            "default = msmodelslim.model.default.loader:Loader\n"
        )
        names = sorted(path.relative_to(site) for path in package.rglob("*") if path.is_file())
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))

    def recipe(self, family: str, name: str, w: int, a: int, *, models: str = "", api: str = "modelslim_v1") -> Path:
        path = self.home / "site" / "msmodelslim" / "lab_practice" / family / f"{name}.yaml"
        label = {"w_bit": w, "a_bit": a, "is_sparse": False, "kv_cache": False}
        meta = {"config_id": name, "score": 90, "verified_model_types": [models] if models else [], "label": label}
        spec = {"calib_dataset" if api == "modelslim_v0" else "dataset": "mix_calib.jsonl", "process": []}
        path.write_text(json.dumps({"apiversion": api, "metadata": meta, "spec": spec}))
        return path

    def mode(self, word: str) -> None:
        self._mode.write_text(word)

    @property
    def asked(self) -> dict:
        return json.loads(Path(f"{self._mode}.asked").read_text())

    @property
    def was_run(self) -> bool:
        return Path(f"{self._mode}.asked").exists()
