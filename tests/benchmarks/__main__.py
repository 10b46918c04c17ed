"""`make bench`: every benchmark of this folder, each in a process of its own."""

import subprocess
import sys
from pathlib import Path

for path in sorted(Path(__file__).parent.glob("bench_*.py")):
    subprocess.run([sys.executable, "-m", f"tests.benchmarks.{path.stem}"], check=True)
