"""Step of the job `sample_model`: write a small random model.

python -m deployments.agent.models.sample FOLDER KIND LAYERS
"""

import sys
from pathlib import Path

from deployments.agent.config import Config
from deployments.agent.models import ending
from deployments.artifacts import digests, sample, target
from deployments.artifacts.paths import tidy

SIZE = 8 << 20


def write(config: Config, folder: Path, kind: str, layers: int) -> None:
    """Raises BadModel, OSError, and Satisfied where this very model lies there."""
    if folder.is_dir() and any(folder.iterdir()) and _is_it(config, folder, kind, layers):
        raise ending.Satisfied
    target.check(folder)
    target.room(folder, SIZE)
    part = target.begin(folder)
    sample.make(part, kind, layers)
    ending.put(config, part, folder, digests.make(part), via="sample")


def _is_it(config: Config, folder: Path, kind: str, layers: int) -> bool:
    known = digests.known(config.state_dir, folder)
    found = digests.make(folder)
    wanted = sample.manifest(kind, layers)
    if known != found or wanted != found:
        return False
    ending.tell(folder, found, via="sample")
    return True


def main(argv: list[str] | None = None) -> int:
    folder, kind, layers = sys.argv[1:] if argv is None else argv
    return ending.run(lambda config: write(config, Path(tidy(folder)), kind, int(layers)))


if __name__ == "__main__":
    sys.exit(main())
