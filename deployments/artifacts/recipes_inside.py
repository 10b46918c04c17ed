"""Run by the Python of msModelSlim's environment, which knows nothing of ours: what the installed package can do.

`recipes_inside.py list` prints JSON {version, recipes_dir, calib_dir, adapters: {name: family}, recipes: […]}.
`recipes_inside.py read FILE` prints one recipe so. `recipes_inside.py write FILE OUT DATASET` writes the recipe with
another calibration set. It reads files only: importing the package would take seconds, and torch.
"""

import importlib.metadata
import json
import os
import pathlib
import re
import stat
import sys
from typing import Any

MOST_BYTES = 1024 * 1024
MOST_ROWS = 1000
FAMILY = re.compile(r"def get_model_pedigree\(.*?return\s+['\"]([^'\"]+)['\"]", re.DOTALL)
GROUP = "msmodelslim.model_adapter.plugins"


def package() -> pathlib.Path:
    """The folder of the package, without importing it."""
    for file in importlib.metadata.files("msmodelslim") or ():
        if file.as_posix() == "msmodelslim/__init__.py":
            return pathlib.Path(str(file.locate())).parent
    raise SystemExit("msmodelslim is not installed whole")


def family_of(home: pathlib.Path, value: str) -> str:
    """The folder of recipes that an adapter takes: the text of its `get_model_pedigree`."""
    module = value.partition(":")[0].split(".")[1:]
    for depth in range(len(module) - 1, 1, -1):
        path = home.joinpath(*module[:depth], "model_adapter.py")
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if found := FAMILY.search(text):
            return found[1]
    return module[1] if len(module) > 1 else ""


def content(path: "str | pathlib.Path") -> bytes:
    """Raises ValueError and OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would hold us, and a device never end
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no file")
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError("it is larger than 1 MB")
    return text


def load(path: "str | pathlib.Path") -> "dict[str, Any]":
    import yaml  # a requirement of msModelSlim

    data = yaml.safe_load(content(path))
    if not isinstance(data, dict) or not isinstance(data.get("spec"), dict):
        raise ValueError("it has no spec")
    return data


def word(value: Any) -> str:
    """A text or number as a text. YAML makes lists of lists of lists of a few lines, which would be gigabytes."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def bits(label: "dict[str, Any]", name: str) -> "int | None":
    value = label.get(name)
    return value if isinstance(value, int) else None


def words(values: Any) -> "list[str]":
    return [word(one) for one in values[:MOST_ROWS]] if isinstance(values, list) else []


def row(path: "str | pathlib.Path", family: str = "") -> "dict[str, Any]":
    """What of a recipe decides whether it is taken, and what it takes. Raises ValueError and YAMLError."""
    data = load(path)
    meta, spec = data.get("metadata") or {}, data["spec"]
    label = meta.get("label") or {}
    save = spec.get("save") or [{}]
    return {
        "path": str(path), "family": family, "api": word(data.get("apiversion", "")),
        "id": word(meta.get("config_id", pathlib.Path(path).stem)), "score": float(meta.get("score") or 0),
        "w_bit": bits(label, "w_bit"), "a_bit": bits(label, "a_bit"), "sparse": bool(label.get("is_sparse")),
        "kv": bool(label.get("kv_cache")), "fa": bits(label, "fa_bit") or (8 if label.get("fa_quant") else None),
        "models": words(meta.get("verified_model_types")),
        "tags": {word(name): [words(tags) for tags in rows[:MOST_ROWS]]
                 for name, rows in (meta.get("verified_tags") or {}).items()},
        "runner": word(spec.get("runner") or ""),
        "dataset": word(spec.get("dataset") or spec.get("calib_dataset") or ""),
        "saver": word((save[0] or {}).get("type", "") if isinstance(save, list) and save else ""),
    }  # fmt: skip


def listed() -> "dict[str, Any]":
    home = package()
    found = []
    for path in sorted((home / "lab_practice").glob("*/*.yaml")):
        try:
            found.append(row(path, path.parent.name))
        except Exception as error:  # a recipe that cannot be read is none
            print(f"{path}: {error}", file=sys.stderr)
    points = importlib.metadata.distribution("msmodelslim").entry_points
    return {
        "version": importlib.metadata.version("msmodelslim"),
        "calib_dir": str(home / "lab_calib"),
        "calib": sorted(path.name for path in (home / "lab_calib").iterdir() if path.suffix in (".jsonl", ".json")),
        "adapters": {one.name: family_of(home, one.value) for one in points if one.group == GROUP},
        "recipes": found,
    }


def write(path: str, out: str, dataset: str) -> None:
    import yaml

    data = load(path)
    data["spec"]["calib_dataset" if data.get("apiversion") == "modelslim_v0" else "dataset"] = dataset
    pathlib.Path(out).write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), encoding="utf-8")


def main(do: str, *words: str) -> None:
    if do == "list":
        print(json.dumps(listed()))
    elif do == "read":
        print(json.dumps(row(words[0])))
    else:
        write(*words)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # what the library for YAML raises is its own
        sys.exit(" ".join(str(error).split())[:200] or type(error).__name__)
