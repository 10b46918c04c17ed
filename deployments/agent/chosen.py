"""Which code an agent that has joined starts with: what was installed, or what the console sent to it since.

Joining installs as whoever pasted the command, often root; the agent may not change that code, and needs not: what it
is sent lies in its own `<state>/code/`, a folder for each code, named like those of `code/` in the installation, and
`choice.json`. At each start the installed code looks there and makes way. So root never runs what the agent has
written, and code that does not start is left by deleting nothing: the choice is taken back.

A choice is on trial until its watcher, a process of the job `agent_upgrade`, has confirmed it. Where the watcher is no
more, the power was cut for instance, the next start takes the choice back.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.agent import ROOT, code, install, processes, spool
from deployments.agent.config import Config
from deployments.steps import Text

CHOICE = "choice.json"
STARTED = "started.json"
SOUND = "sound.json"


@dataclass(frozen=True)
class Choice:
    """`code` is a folder's name, '' what was installed; `before` the same of what to go back to.

    `over` names the installation that it stands over; `watcher` is there while it is on trial.
    """

    over: str
    code: str
    before: str = ""
    watcher: processes.Identity | None = None


@dataclass(frozen=True)
class Sound:
    """How the link of one code fares since it began: beats that Redis took, samples too, whether the worker lives."""

    code: str
    beats: int
    samples: int
    worker: bool


def home(state: Path) -> Path:
    return state / "code"


def installed(config: Config) -> install.Install | None:
    """Where this agent was installed by joining; None where it is the console's own."""
    prefix = config.path.parent.parent
    try:
        return install.read(prefix) if config.path == prefix / "etc" / "config.json" else None
    except (OSError, ValueError, TypeError):
        return None


def read(state: Path) -> Choice | None:
    """The choice as it stands; None where there is none, or none that can be read."""
    data = _read(home(state) / CHOICE)
    try:
        watcher = data.get("watcher")
        over, code, before = (str(data[name]) for name in ("over", "code", "before"))
        return Choice(over, code, before, processes.Identity(**watcher) if watcher else None)
    except (KeyError, TypeError):
        return None


def write(state: Path, choice: Choice) -> None:
    """Make it the choice, whole or not at all, also when the power is cut. Raises OSError."""
    data = {**vars(choice), "watcher": choice.watcher._asdict() if choice.watcher else None}
    spool.write_synced(home(state) / CHOICE, json.dumps(data).encode())


def pick(config: Config) -> Path | None:
    """The folder to start from, None for what was installed. Takes back a choice that nobody watches any more."""
    choice, place = read(config.state_dir), installed(config)
    if choice is None or place is None or choice.over != place.joined:
        return None
    if choice.watcher and not processes.lives(choice.watcher):
        choice = Choice(choice.over, choice.before)
        write(config.state_dir, choice)
    folder = home(config.state_dir) / choice.code
    return folder if choice.code and is_whole(folder) else None


def describe(place: install.Install) -> Text:
    """Which code the agent starts with, for who asks on the server itself, who may be root: it runs none of it."""
    choice = read(place.state)
    base = (place.prefix / "current").resolve()
    sent = choice is not None and choice.over == place.joined and choice.code != ""
    folder = home(place.state) / choice.code if choice and sent else base
    if not is_whole(folder):
        sent, folder = False, base
    version, name = version_of(folder), folder.name
    how = Text("由控制台升级", "sent by the console") if sent else Text("加入时安装", "as installed")
    if sent and choice and choice.watcher:
        how = Text("升级试用中", "on trial")
    return Text(f"  版本 {version}，代码 {name}（{how.zh}）", f"  version {version}, code {name} ({how.en})")


def version_of(folder: Path) -> str:
    """The version that the code in a folder says it is, "—" where it does not."""
    try:
        text = (folder / "lib" / "deployments" / "agent" / "__init__.py").read_bytes()[:8192].decode(errors="replace")
    except OSError:
        return "—"
    found = re.search(r'^VERSION = "([\w.+-]{1,40})"$', text, re.MULTILINE)
    return found[1] if found else "—"


def is_whole(folder: Path) -> bool:
    return (folder / "lib" / "deployments" / "agent" / "__main__.py").is_file() and (folder / "site").is_dir()


def path_of(folder: Path) -> str:
    """PYTHONPATH of an agent that starts from there."""
    return f"{folder / 'lib'}{os.pathsep}{folder / 'site'}"


def is_orphan(config: Config) -> bool:
    """Whether we run on trial and nobody watches: the next start is one of the code before."""
    choice = read(config.state_dir)
    mine = code() if ROOT.parent.parent == home(config.state_dir) else ""
    return bool(choice and choice.watcher and choice.code == mine and not processes.lives(choice.watcher))


def note_start(state: Path) -> None:
    """Leave who is about to start. Written before the choice is read: who changes the choice sees us, or we see it."""
    own = processes.identity(os.getpid())
    assert own is not None
    spool.write_whole(state / STARTED, json.dumps(own._asdict()).encode())


def started(state: Path) -> processes.Identity | None:
    """Who started last, alive or not."""
    try:
        return processes.Identity(**_read(state / STARTED))
    except TypeError:
        return None


def note_sound(state: Path, sound: Sound) -> None:
    """Leave how the link fares; only where an agent was ever sent any code is there somebody who may ask."""
    if home(state).is_dir():
        spool.write_whole(state / SOUND, json.dumps(vars(sound)).encode())


def sound(state: Path) -> Sound | None:
    try:
        return Sound(**_read(state / SOUND))
    except TypeError:
        return None


def forget_sound(state: Path) -> None:
    (state / SOUND).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
