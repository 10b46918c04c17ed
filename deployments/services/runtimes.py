"""Relocatable Pythons for servers whose own is too old, one per kind of machine, kept under VAR_DIR/runtimes."""

import hashlib
import json
import re
import shutil
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from django.conf import settings

from console.valkey import write_private

MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}  # e_machine of an ELF header
OLDEST = (3, 10)
PYTHON = re.compile(r"(?:[^/]+/)*bin/python3")
LIBRARY = re.compile(r"(?:[^/]+/)*lib/python3\.(\d{1,2})/os\.py")


class BadRuntime(ValueError):
    """A file that cannot serve; its text says why and what to do."""


@dataclass(frozen=True)
class Runtime:
    """`python` is the path of its interpreter inside the archive; `digest` is SHA-256, hex."""

    machine: str
    version: str
    digest: str
    python: str
    name: str
    size: int

    @property
    def path(self) -> Path:
        return folder() / f"{self.machine}.tar.gz"


def folder() -> Path:
    return Path(settings.VAR_DIR) / "runtimes"


def present() -> dict[str, Runtime]:
    """The runtimes by kind of machine."""
    found = {}
    for machine in MACHINES.values():
        try:
            found[machine] = Runtime(**json.loads((folder() / f"{machine}.json").read_text()))
        except (OSError, ValueError, TypeError):
            continue
    return {machine: runtime for machine, runtime in found.items() if runtime.path.is_file()}


def add(file: Path, digest: str) -> Runtime:
    """Keep a copy of `file`, in place of the one for the same kind of machine. Raises BadRuntime."""
    try:
        with file.open("rb") as source:
            measured = hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise BadRuntime(f"{file} cannot be read ({error.strerror}). Name a file this user may read.") from error
    if measured != digest.strip().lower():
        raise BadRuntime(f"{file} has the SHA-256 {measured}, not the one given. Fetch it again, or correct --sha256.")
    machine, version, python = _look_into(file)
    made = Runtime(machine, version, measured, python, file.name, file.stat().st_size)
    folder().mkdir(parents=True, exist_ok=True)
    new = folder() / f".{machine}.new"
    shutil.copyfile(file, new)
    new.replace(made.path)
    write_private(folder() / f"{machine}.json", json.dumps(asdict(made)))
    return made


def remove(machine: str) -> bool:
    """Whether there was one."""
    there = machine in present()
    (folder() / f"{machine}.json").unlink(missing_ok=True)
    (folder() / f"{machine}.tar.gz").unlink(missing_ok=True)
    return there


def _look_into(file: Path) -> tuple[str, str, str]:
    """(machine, version, path of its python3) of an archive. Raises BadRuntime."""
    try:
        with tarfile.open(file, "r:gz") as archive:
            members = {str(PurePosixPath(member.name)): member for member in archive}
            python = min((name for name in members if PYTHON.fullmatch(name)), key=len, default="")
            minors = [int(match[1]) for name in members if (match := LIBRARY.fullmatch(name))]
            if not python or not minors or not re.fullmatch(r"[A-Za-z0-9._/+-]+", python):
                raise BadRuntime(
                    f"{file} holds no Python (bin/python3 and lib/python3.*). Add an archive such as "
                    "cpython-3.12…-aarch64-unknown-linux-gnu-install_only.tar.gz."
                )
            head = _head(archive, members, python)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise BadRuntime(f"{file} is no .tar.gz archive that can be read ({error}). Fetch it again.") from error
    if (3, minors[0]) < OLDEST:
        raise BadRuntime(f"{file} holds Python 3.{minors[0]}, and the agent needs 3.10 or newer. Add a newer one.")
    machine = MACHINES.get(int.from_bytes(head[18:20], "little")) if head[:4] == b"\x7fELF" else None
    if machine is None:
        raise BadRuntime(f"{file} holds no Python for Linux on x86_64 or aarch64. Add one that is.")
    return machine, f"3.{minors[0]}", python


def _head(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], name: str) -> bytes:
    """The first bytes of a file in the archive; links are followed inside it, a few at most."""
    for _link in range(5):
        member = members.get(name)
        if member is None or not (member.issym() or member.islnk()):
            break
        target = PurePosixPath(member.linkname)
        name = str(target if member.islnk() else PurePosixPath(name).parent / target)
    content = archive.extractfile(member) if member is not None and member.isfile() else None
    return content.read(64) if content else b""
