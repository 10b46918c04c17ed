"""`make bench`: every benchmark of this folder, each in a process of its own; one that misses stops no other."""

import subprocess
import sys
from pathlib import Path

missed = []
for path in sorted(Path(__file__).parent.glob("bench_*.py")):
    print(f"-- {path.stem}", flush=True)
    if subprocess.run([sys.executable, "-m", f"tests.benchmarks.{path.stem}"]).returncode:
        missed.append(path.stem)
if missed:
    sys.exit(f"missed their budget or broke: {', '.join(missed)}")
