"""Step of the job `install`: fetch the wheels of a bundle that the console keeps, each compared with its digest.

    python -m deployments.agent.wheels NAME DIGEST FOLDER [PACKAGE …]

With names of packages of the vendor it fetches these instead. The digest is that of the manifest and came in the signed
payload; the manifest has one for each file. Files that are there whole are not fetched again, so that a step that was
cut off goes on where it was.
"""

import hashlib
import http.client
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from deployments.agent import pages
from deployments.agent.config import Config
from deployments.agent.pages import Stopped, say
from deployments.stacks.bundles import CHUNK, MAX_MANIFEST, BadBundle, digest_of, read_manifest

TRIES = 3
TOLD_S = 5.0
SPARE_BYTES = 64 << 20


def fetch_all(config: Config, bundle: str, digest: str, folder: Path, packages: Sequence[str] = ()) -> None:
    """Raises Stopped; what came whole stays."""
    data = _manifest(config, bundle)
    if hashlib.sha256(data).hexdigest() != digest:
        raise Stopped(
            "控制台上的离线包已换成另一个。请重新查看计划，再提交作业。",
            "The console has another bundle of this name by now. Look at the plan again, then queue the job anew.",
        )
    try:
        manifest = read_manifest(data)
        files = {name: manifest["vendor"][name] for name in packages} if packages else manifest["files"]
    except (BadBundle, KeyError) as error:
        raise Stopped(f"离线包的清单无法使用：{error}", f"The bundle's manifest cannot be used: {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():
            if left.name not in files:  # of another bundle, or half of one
                left.unlink()
    except OSError as error:
        raise _unwritable(folder, error) from error
    _check_room(folder, files)
    _each(config, bundle, files, folder)


def _manifest(config: Config, bundle: str) -> bytes:
    """Raises Stopped where it is cut off on its way."""
    try:
        return pages.ask(config, "wheels", bundle=bundle, file="").read(MAX_MANIFEST + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Stopped(
            f"离线包的清单没有传完（{error}）。请检查网络，再重试。",
            f"The bundle's manifest did not come whole ({error}). Look at the network, then try again.",
        ) from error


def _check_room(folder: Path, files: "dict[str, dict[str, object]]") -> None:
    """Before anything is fetched. Raises Stopped."""
    there = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    need = sum(int(str(row["size"])) for name, row in files.items() if there.get(name) != row["size"])
    free = shutil.disk_usage(folder).free
    if free < need + SPARE_BYTES:
        raise Stopped(
            f"磁盘太小：{folder} 可用 {free >> 20:,} MB，离线包还要 {need >> 20:,} MB。请清出空间，再重试。",
            f"The disk is too small: {free >> 20:,} MB are free at {folder}, and the bundle takes {need >> 20:,} MB "
            "more. Make room, then try again.",
        )


def _unwritable(folder: Path, error: OSError) -> Stopped:
    words = os.strerror(error.errno or 0)
    return Stopped(
        f"写不了 {folder}（{words}）。请清出空间或检查权限，再重试。",
        f"{folder} cannot be written ({words}). Free some space or mend the rights, then try again.",
    )


def _each(config: Config, bundle: str, files: "dict[str, dict[str, object]]", folder: Path) -> None:
    total, done, told = sum(int(str(row["size"])) for row in files.values()), 0, time.monotonic()
    for n, (name, row) in enumerate(sorted(files.items()), 1):
        path = folder / name
        if not (path.is_file() and path.stat().st_size == row["size"] and digest_of(path) == row["sha256"]):
            _one(config, bundle, name, str(row["sha256"]), path)
        done += int(str(row["size"]))
        if time.monotonic() - told >= TOLD_S or n == len(files):
            told = time.monotonic()
            say(f"{n}/{len(files)} 个文件，{done >> 20:,}/{total >> 20:,} MB。", f"{n} of {len(files)} files.")


def _one(config: Config, bundle: str, name: str, digest: str, path: Path) -> None:
    """Fetch one file, whole or not at all. Raises Stopped."""
    new = path.with_name(f".{name}.new")
    for attempt in range(1, TRIES + 1):
        try:
            if _write(_pieces(pages.ask(config, "wheels", bundle=bundle, file=name)), new) == digest:
                new.replace(path)
                return
            problem = "its digest is another"
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            problem = str(error) or type(error).__name__
        except OSError as error:
            raise _unwritable(path.parent, error) from error
        say(f"{name}：第 {attempt} 次未取得。", f"{name} did not come whole ({problem}), attempt {attempt}.")
    raise Stopped(
        f"{name} 取了 {TRIES} 次都不完整。请在控制台运行 manage.py bundle list，并检查中间的代理。",
        f"{name} did not come whole in {TRIES} attempts. Run manage.py bundle list on the console, and look for a "
        "proxy in between.",
    )


def _pieces(answer: http.client.HTTPResponse) -> Iterable[bytes]:
    while piece := answer.read(CHUNK):
        yield piece


def _write(pieces: Iterable[bytes], path: Path) -> str:
    """The digest of what was written."""
    found = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces:
            found.update(piece)
            file.write(piece)
    return found.hexdigest()


def main(argv: list[str] | None = None) -> int:
    bundle, digest, folder, *packages = sys.argv[1:] if argv is None else argv
    return pages.step(lambda config: fetch_all(config, bundle, digest, Path(folder), packages))


if __name__ == "__main__":
    sys.exit(main())
