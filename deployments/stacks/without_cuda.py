"""`python -m deployments.stacks.without_cuda LIB FILE`: what vLLM asks for, without torch and CUDA, into FILE.

Read from the METADATA of the vLLM that lies below LIB; a line of FILE for each requirement.
"""

import re
import sys
from pathlib import Path

# What vLLM's wheel wants for NVIDIA's cards, and what the row of the stack pins itself.
LEFT_OUT = re.compile(
    r"(torch|torchvision|torchaudio|triton|xformers|tilelang|numba-cuda|flashinfer|flash-attn|nvidia|cuda|cupy)"
    r"([-_.][a-z0-9._-]*)?",
    re.IGNORECASE,
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def requirements(metadata: str) -> list[str]:
    """The requirements that are not of an extra and not of CUDA, as they are written."""
    kept = []
    for line in metadata.split("\n\n", 1)[0].splitlines():
        word, _, rest = line.partition(":")
        rest = rest.strip()
        name = NAME.match(rest)
        if word == "Requires-Dist" and name and "extra ==" not in rest and not LEFT_OUT.fullmatch(name[0]):
            kept.append(rest)
    return kept


def find(lib: Path) -> "Path | None":
    """METADATA of the vLLM below `lib`."""
    return next(iter(sorted(lib.glob("python3*/site-packages/vllm-*.dist-info/METADATA"))), None)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("It takes LIB and FILE.", file=sys.stderr)
        return 2
    found = find(Path(arguments[0]))
    if found is None:
        print(f"There is no vLLM below {arguments[0]}. Install it first.", file=sys.stderr)
        return 1
    kept = requirements(found.read_text(encoding="utf-8", errors="replace"))
    Path(arguments[1]).write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    print(f"{len(kept)} requirements")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
