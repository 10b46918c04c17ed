"""Where things lie that may go. Each finder names candidates; none of them is a link, or reached through one."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from deployments.agent import spool
from deployments.agent.cleanup.measure import OLD_SPOOL_S, used_since
from deployments.agent.config import Config
from deployments.agent.models import root as models_root
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.system import MODEL_FOLDERS
from deployments.stacks import one_prompt
from deployments.stacks.installed import NAME

PLOG, LOGS, STACKS, IMAGES, DOWNLOADS, SPOOLS = CATEGORIES = (
    "plog", "logs", "stacks", "images", "downloads", "spools",
)  # fmt: skip
LEVELS = ("debug", "run", "security", "operation")
PLOG_PART = re.compile(r"plog|device-(app-)?\d+")
HALF = re.compile(r"\.?[^/]*\.(incomplete|part)|\._____temp")  # Hugging Face, browsers and wget; ModelScope
CACHES = (".cache/huggingface", ".cache/modelscope")
DEEPEST = 6
MOST_FOLDERS = 4000  # that are looked into for half downloads
MOST_HOMES = 40


class Candidate(NamedTuple):
    """`path` as it is shown; `full` is where it lies for us. With `inside` its files go and the folder stays."""

    category: str
    path: str
    full: Path
    inside: bool = False

    @property
    def name(self) -> str:
        return f"{self.category}:{self.path}"


class Server(NamedTuple):
    """What finders need: the host of the probes with the folder of its stacks, the agent's config, its home."""

    host: Host
    config: Config
    home: str


def server_of(config: Config, stacks: str) -> Server:
    """On a simulated server everything but the agent's own state lies below the server's own root."""
    host = Host(config.root)
    host.stacks, host.state = stacks, config.state_dir
    return Server(host, config, "/root" if config.simulated else os.environ.get("HOME", "/"))


def straight(full: Path, root: Path) -> bool:
    """Whether it is there by this very path: no link on the way, nothing that climbs out of the root."""
    top = Path(os.path.realpath(root))
    try:
        inside = full.relative_to(root)
    except ValueError:
        return False
    return os.path.realpath(full) == str(top / inside) and not full.is_symlink()


def candidates(server: Server) -> Iterator[Candidate]:
    """Everything but images, which are no files of ours."""
    root = server.host.root
    for finder in (plogs, engine_logs, environments, half_downloads):
        for category, path, inside in finder(server):
            full = server.host.path(path)
            if is_plain(path) and straight(full, root) and full.exists():
                yield Candidate(category, path, full, inside)
    for full in [*left_code(server.config), *old_spools(server.config)]:
        category = SPOOLS if full.parent == server.config.attempts else DOWNLOADS
        if is_plain(str(full)) and straight(full, server.config.state_dir):
            yield Candidate(category, str(full), full)


def is_plain(path: str) -> bool:
    """Whether the path can be shown, sent and compared as it is."""
    return path.startswith("/") and path.isprintable() and len(path) <= 1000 and ".." not in path.split("/")


Named = Iterable[tuple[str, str, bool]]  # category, path, inside


def homes(server: Server) -> list[str]:
    """The agent's own first; those of others are listed with the command that clears them."""
    others = [f"/home/{name}" for name in server.host.look("/home")[:MOST_HOMES]]
    return list(dict.fromkeys([server.home.rstrip("/"), "/root", *others]))


def plogs(server: Server) -> Named:
    """The folders of CANN's own logs: in each home, and where the agent's environment says."""
    env = server.config.env | dict(os.environ)
    bases = [f"{home}/ascend/log" for home in homes(server)]
    bases += [env.get("ASCEND_PROCESS_LOG_PATH", "")]
    bases += [f"{env['ASCEND_WORK_PATH']}/log"] if env.get("ASCEND_WORK_PATH") else []
    for base in dict.fromkeys(base.rstrip("/") for base in bases if base.startswith("/")):
        for level in LEVELS:
            for name in server.host.look(f"{base}/{level}"):
                if PLOG_PART.fullmatch(name):
                    yield PLOG, f"{base}/{level}/{name}", True


def engine_logs(server: Server) -> Named:
    """Logs that engines leave: MindIE's, and sessions of Ray but the newest."""
    for home in homes(server):
        if server.host.look(f"{home}/mindie/log"):
            yield LOGS, f"{home}/mindie/log", True
    for name in server.host.look("/tmp/ray"):
        if name.startswith("session_") and name != "session_latest" and name != latest_session(server.host):
            yield LOGS, f"/tmp/ray/{name}", False
    if server.host.look("/var/log/npu"):
        yield LOGS, "/var/log/npu", True


def latest_session(host: Host) -> str:
    try:
        return Path(os.readlink(host.path("/tmp/ray/session_latest"))).name  # noqa: PTH115
    except OSError:
        return ""


def environments(server: Server) -> Named:
    """Stacks that neither `current` nor `before` points to, and what a removal left half done."""
    base = server.host.stacks
    pointed = {target(server.host, f"{base}/{link}") for link in ("current", "before")}
    for name in server.host.look(base):
        if name in ("current", "before", one_prompt.FOLDER) or name in pointed:
            continue
        if NAME.fullmatch(name) or name.startswith(".gone-"):
            yield STACKS, f"{base}/{name}", False


def target(host: Host, link: str) -> str:
    try:
        return Path(os.readlink(host.path(link))).name  # noqa: PTH115 - the text as it stands
    except OSError:
        return ""


def half_downloads(server: Server) -> Named:
    """Pieces of wheels, models and caches."""
    base = server.host.stacks
    for name in server.host.look(base):
        for piece in server.host.look(f"{base}/{name}/wheels"):
            if piece.startswith(".") and piece.endswith(".new"):
                yield DOWNLOADS, f"{base}/{name}/wheels/{piece}", False
    tops = [name for name in MODEL_FOLDERS if name not in ("/", "/home", "/data")] + ["/data"]
    tops.append(models_root.of(server.config))
    tops += [f"{home}/{cache}" for home in homes(server) for cache in CACHES]
    seen: set[str] = set()
    for top in tops:
        for path in pieces_below(server.host, top):
            if path not in seen:
                seen.add(path)
                yield DOWNLOADS, path, False


def pieces_below(host: Host, top: str) -> Iterator[str]:
    """Names of half downloads, nearest first; links are not followed, and the search ends after MOST_FOLDERS."""
    waiting, looked = [(top, 0)], 0
    while waiting and looked < MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        looked += 1
        try:
            with os.scandir(host.path(folder)) as entries:
                found = sorted(
                    (entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries
                )
        except OSError:
            continue
        for name, is_folder, is_link in found:
            if HALF.fullmatch(name) and not is_link:
                yield f"{folder}/{name}"
            elif is_folder and depth < DEEPEST:
                waiting.append((f"{folder}/{name}", depth + 1))


def left_code(config: Config) -> list[Path]:
    """Code of the agent that was not unpacked to the end."""
    return sorted((config.state_dir / "code").glob(".new-*"))


def old_spools(config: Config) -> list[Path]:
    """Attempts that ended long ago and whose lines the console has never taken; the claim itself stays."""
    found = []
    for folder in spool.folders(config.attempts):
        ended = spool.has_ended(folder) and not (folder / "shipped").exists()
        if ended and not spool.is_alive(folder) and not used_since(folder / "lines", OLD_SPOOL_S):
            found.append(folder)
    return found
