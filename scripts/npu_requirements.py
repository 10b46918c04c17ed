"""Write requirements-npu.txt: the Python pins of the default stack. `python scripts/npu_requirements.py`"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from deployments.stacks.catalogue import built_in  # noqa: E402
from deployments.stacks.pins import requirements  # noqa: E402

if __name__ == "__main__":
    known = built_in()
    (ROOT / "requirements-npu.txt").write_text(requirements(known.default, known), encoding="utf-8")
    print(f"requirements-npu.txt: {known.default.name}")
