"""Step of the job `agent_upgrade`: fetch the agent's bundle from the console and lay it beside the code that runs.

    python -m deployments.agent.bundles DIGEST

The digest came in the signed payload, so it does not matter who stands between us and the console. The bundle comes by
HTTP, as at joining, and not through Redis, where a megabyte for each server would be in everybody's way.
"""

import contextlib
import http.client
import io
import os
import shutil
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

from deployments.agent import chosen, pages, processes, spool
from deployments.agent.config import Config
from deployments.agent.engines import folder as engines
from deployments.agent.install import Install
from deployments.agent.pages import Stopped, place_of, say

MAX_BUNDLE = 64 * 1024 * 1024
MAX_UNPACKED = 256 * 1024 * 1024
TRY_S = 60.0
KEPT = 2
PARTS = ("worker", "link", "sampler", "runner", "engines.keeper", "__main__")


def base_name(place: Install) -> str:
    """The folder's name of the code that joining installed."""
    return (place.prefix / "current").resolve().name


def present(config: Config, place: Install) -> str:
    """The folder's name of the code that the agent starts with now."""
    choice = chosen.read(config.state_dir)
    sent = choice.code if choice and choice.over == place.joined else ""
    return sent if sent and chosen.is_whole(chosen.home(config.state_dir) / sent) else base_name(place)


def fetched(config: Config, digest: str) -> Path | None:
    """The folder of that bundle, fetched and tried where it is not there yet; None where it is what was installed."""
    place = place_of(config)
    name = digest[:16]
    if name == base_name(place):
        say("这正是加入时安装的代码，无需下载。", "That is the code that was installed at joining; nothing to fetch.")
        return None
    folder = chosen.home(config.state_dir) / name
    if not chosen.is_whole(folder):
        data = download(config, digest)
        choice = chosen.read(config.state_dir)
        if choice and choice.code == name:  # chosen, but broken since: what was installed runs in its stead
            chosen.write(config.state_dir, chosen.Choice(place.joined, ""))
        unpack(data, folder)
        say(f"已核对摘要并解压到 {folder}。", f"The digest is right; unpacked into {folder}.")
    check_starts(folder)
    return folder


def download(config: Config, digest: str) -> bytes:
    """The bundle with that digest. Raises Stopped."""
    say("从控制台下载 …", "Fetching from the console …")
    answer = pages.ask(config, "code", digest=digest)
    try:
        data = answer.read(MAX_BUNDLE + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Stopped(f"下载中断（{error}）。请重试。", f"The download was cut off ({error}). Try again.") from error
    if sha256(data).hexdigest() != digest:
        raise Stopped(
            "收到的代理包与签名的摘要不符，已丢弃。请检查本机与控制台之间是否有代理，再重试。",
            "What came does not have the digest that was signed, and was thrown away. Look for a proxy between this "
            "server and the console, then try again.",
        )
    return data


def unpack(data: bytes, folder: Path) -> None:
    """Lay the bundle at `folder`, whole or not at all. Raises Stopped."""
    home = folder.parent
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        for left in home.glob(".new-*"):
            shutil.rmtree(left, ignore_errors=True)
        if folder.exists():  # half of it, from a disk that was full
            shutil.rmtree(folder)
        aside = home / f".new-{folder.name}"
        _extract(data, aside)
        aside.rename(folder)
    except OSError as error:
        words = os.strerror(error.errno or 0)
        raise Stopped(
            f"代理包无法解压到 {home}（{words}）。请清出空间或检查权限，再重试。",
            f"The bundle could not be unpacked into {home} ({words}). Free some space or mend the rights, then try "
            "again.",
        ) from error
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise Stopped(f"代理包无法读取：{error}", f"The bundle cannot be read: {error}") from error


def _extract(data: bytes, folder: Path) -> None:
    """Plain files below lib/ and site/ only, each on the disk when this returns."""
    room = MAX_UNPACKED
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        for entry in tar:
            parts = Path(entry.name).parts
            room -= entry.size
            if not entry.isfile() or parts[0] not in ("lib", "site") or ".." in parts or room < 0:
                raise ValueError(f"{entry.name[:100]} does not belong there")
            content = tar.extractfile(entry)
            assert content is not None
            path = folder / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            spool.write_synced(path, content.read(), 0o644)


def check_starts(folder: Path) -> None:
    """Raises Stopped where this server's Python cannot even load it: then the agent that runs is not disturbed."""
    program = "import " + ", ".join(f"deployments.agent.{part}" for part in PARTS)
    env = {**os.environ, "PYTHONPATH": chosen.path_of(folder)}
    try:
        tried = subprocess.run(
            [sys.executable, "-c", program], env=env, cwd="/", capture_output=True, text=True, timeout=TRY_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Stopped(f"新代理在本机试运行失败：{error}", f"The new agent could not be tried here: {error}") from error
    if tried.returncode:
        print(tried.stderr[-4000:], flush=True)
        last = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1][:300]
        raise Stopped(
            f"新代理在本机的 Python 上无法加载（{last}），未作改动。",
            f"This server's Python cannot load the new agent ({last}); nothing was changed.",
        )


def prune(home: Path, attempts: Path, keep: set[str]) -> list[str]:
    """Remove code that nobody starts with or runs from any more; the names of what went.

    A runner that lives goes on loading from the code it was started from, for hours maybe.
    """
    used = keep | _in_use(attempts)
    gone = []
    for folder in sorted(home.iterdir()):
        if folder.is_dir() and not folder.is_symlink() and folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
    return gone


def _in_use(attempts: Path) -> set[str]:
    """Names of the folders that living runners and keepers of engines were started from."""
    names = set()
    runners = [spool.runner_identity(folder) for folder in spool.folders(attempts) if spool.is_alive(folder)]
    living = [who.pid for who in runners if who and processes.lives(who)]
    for pid in [*living, *engines.keepers(attempts.parent)]:
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            names |= {Path(line[11:].decode(errors="replace").split(os.pathsep)[0]).parent.name
                      for line in variables if line.startswith(b"PYTHONPATH=")}  # fmt: skip
    return names


def main(argv: list[str] | None = None) -> int:
    (digest,) = sys.argv[1:] if argv is None else argv
    return pages.step(lambda config: fetched(config, digest))


if __name__ == "__main__":
    sys.exit(main())
