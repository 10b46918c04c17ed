"""`scripts/msmodelslim_recipes.py PYTHON`: write down which recipes an installed msModelSlim has, so that pages know
before a server is asked. PYTHON is that of its environment."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1] / "deployments" / "artifacts"
ABOUT = "Recipes and model types of msModelSlim, as its package has them; made by scripts/msmodelslim_recipes.py."


def short(row: dict[str, Any]) -> dict[str, Any]:
    """Without what a recipe does not say, and without where it lies here."""
    kept = {key: value for key, value in row.items() if value not in ("", None, [], {}, False) or key == "models"}
    return {**kept, "path": row["path"].partition("/lab_practice/")[2]}


def text(data: dict[str, Any]) -> str:
    rows = ",\n".join("  " + json.dumps(short(row)) for row in data["recipes"])
    about = {"what": ABOUT, "source": f"PyPI msmodelslim {data['version']}: lab_practice and entry points"}
    head = {"_about": about, "version": data["version"], "calib_dir": "", **{n: data[n] for n in ("calib", "adapters")}}
    return (
        "{\n"
        + "".join(f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items())
        + f' "recipes": [\n{rows}\n ]\n}}\n'
    )


if __name__ == "__main__":
    found = subprocess.run([sys.argv[1], str(HOME / "recipes_inside.py"), "list"], check=True, capture_output=True)
    (HOME / "msmodelslim_recipes.json").write_text(text(json.loads(found.stdout)), encoding="utf-8")
