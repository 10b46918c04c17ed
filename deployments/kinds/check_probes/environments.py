"""Which Pythons lie on a server, and what is installed in each. Nothing is imported or started: files tell it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from deployments.kinds.check_probes.host import Host

HOMES = ("miniconda3", "anaconda3", "miniforge3", "conda", "venv", ".venv")
MOST_ENVIRONMENTS = 40
MOST_FOLDERS = 400  # that are looked into
PYTHON = re.compile(r"python(3\.\d{1,2})")
DIST = re.compile(r"([A-Za-z0-9_.-]+?)-([0-9][^-]*)\.dist-info")


@dataclass(frozen=True)
class Environment:
    """One Python. `places` are the folders of its packages; `named` the distributions there, by name with underscores:
    (folder of its metadata, the version in that folder's name)."""

    path: str
    prefix: str
    version: str
    places: tuple[str, ...]
    host: Host = field(repr=False)
    named: dict[str, tuple[str, str]]

    def has(self, name: str) -> str | None:
        """The version of a distribution, as its METADATA has it; None where it is not installed."""
        if name not in self.named:
            return None
        folder, version = self.named[name]
        told = re.search(r"^Version: (\S{1,60})", self.host.peek(f"{folder}/METADATA")[:20000], re.MULTILINE)
        return told[1] if told else version

    def only(self, names: Iterable[str]) -> dict[str, str]:
        """{name: version} of these that are installed; in a stack of ours without those at which pip was killed."""
        return {name: version for name in names if (version := self.has(name)) and not self._is_half(name)}

    def _is_half(self, name: str) -> bool:
        """As deployments/stacks/evidence.py has it, by which a job goes: a plan must find what the job will."""
        folder = self.named[name][0]
        own = self.prefix.startswith(f"{self.host.stacks}/")
        return own and not all(self.host.exists(f"{folder}/{file}") for file in ("RECORD", "INSTALLER"))


def stacks(host: Host) -> list[str]:
    """The names of the stacks that lie on the server."""
    return [name for name in host.look(host.stacks) if name not in ("current", "before") and name[0] != "."][:40]


def pythons(host: Host) -> list[Environment]:
    """Every Python that lies where Pythons lie."""
    found: list[Environment] = []
    for prefix in _prefixes(host):
        for name in host.look(f"{prefix}/bin"):
            match = PYTHON.fullmatch(name)
            if match and len(found) < MOST_ENVIRONMENTS:
                found.append(_environment(host, prefix, f"{prefix}/bin/{name}", match[1]))
    return found


def _environment(host: Host, prefix: str, path: str, minor: str) -> Environment:
    places = [
        f"{prefix}/{lib}/python{minor}/{site}"
        for lib in ("lib", "lib64")
        for site in ("site-packages", "dist-packages")
    ]
    if prefix == "/usr":
        places.append("/usr/lib/python3/dist-packages")
    named: dict[str, tuple[str, str]] = {}
    for place in places:
        for name in host.look(place):
            if match := DIST.fullmatch(name):
                package = re.sub(r"[-_.]+", "_", match[1]).lower()
                named.setdefault(package, (f"{place}/{name}", match[2]))
    return Environment(path, prefix, _version(host, prefix, minor), tuple(places), host, named)


def _prefixes(host: Host) -> list[str]:
    homes = ["/root", *(f"/home/{name}" for name in host.look("/home")[:40])]
    local = [f"/usr/local/{name}" for name in host.look("/usr/local") if name.startswith("python")]
    opt = [f"/opt/{name}" for name in host.look("/opt")[:60]]
    bases = [*local, *opt, *(f"{home}/{name}" for home in homes for name in HOMES)]
    bases += [host.env.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    nested = [f"{base}/envs/{name}" for base in bases if base for name in host.look(f"{base}/envs")[:40]]
    nested += [f"{base}/{name}" for base in opt for name in ("venv", ".venv")]
    own = [f"{host.stacks}/{name}/{part}" for name in stacks(host) for part in ("venv", "msmodelslim")]
    every = ["/usr", "/usr/local", *own, *bases, *nested]
    return list(dict.fromkeys(path.rstrip("/") for path in every if path.startswith("/")))[:MOST_FOLDERS]


def _version(host: Host, prefix: str, minor: str) -> str:
    """The whole version where a file or a name tells it, else the minor one."""
    config = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", host.peek(f"{prefix}/pyvenv.cfg"), re.MULTILINE)
    if config:
        return config[1]
    for name in host.look(f"{prefix}/conda-meta"):
        if match := re.match(r"python-(\d+\.\d+\.\d+)-", name):
            return match[1]
    named = re.search(r"/python-?(\d+\.\d+\.\d+)$", prefix)
    return named[1] if named and named[1].startswith(f"{minor}.") else minor
