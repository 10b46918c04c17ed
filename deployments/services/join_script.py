"""The text of the script by which a server joins, and the command lines that fetch it."""

import hashlib
import shlex
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from console import addresses, tls
from deployments.models import Enrolment
from deployments.services import bundle, runtimes

HERE = Path(__file__).resolve().parent.parent
MARK = "#@fetch.py"


class Command(NamedTuple):
    """One way to fetch and run the script."""

    name: str
    text: str


@lru_cache(maxsize=1)
def _body() -> str:
    """The part that is the same for every server, with the program that fetches over TLS in it."""
    text = (HERE / "join" / "join.sh").read_text()
    program = (HERE / "agent" / "fetch.py").read_text()
    return text.replace(MARK, program.rstrip("\n"))


def script(enrolment: Enrolment) -> str:
    """The script for one server: values, each quoted, and then what is the same for all."""
    kept = runtimes.present()
    values = {
        "CONSOLE": addresses.public_url(),
        "TOKEN": enrolment.token,
        "PIN": tls.fingerprint() or "",
        "NAME": enrolment.server.name,
        "SERVER_ID": str(enrolment.server_id),
        "BUNDLE_SHA256": bundle.agent().digest,
        "WITHOUT_ROOT": "" if enrolment.root_helper else "1",
        **{f"RUNTIME_{machine}": f"{kept[machine].digest} {kept[machine].python}" if machine in kept else ""
           for machine in runtimes.MACHINES.values()},
    }  # fmt: skip
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return f"#!/bin/sh\n# Joins this server to Ascend Console as {enrolment.server.name}.\n{head}{_body()}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def commands(enrolment: Enrolment) -> list[Command]:
    """The ways to run it, the best first. Each compares the script with its digest before anything runs."""
    pin = tls.fingerprint() or ""
    url = shlex.quote(f"{addresses.public_url()}/join/{enrolment.token}")
    pinned = f" -k --pinnedpubkey {shlex.quote(pin)}" if pin else ""
    ways = [Command("curl", f"curl -sS --noproxy '*'{pinned} {url} -o \"$f\"")]
    if not pin:  # these two cannot hold a server to its key, and the token is a secret
        ways.append(Command("wget", f'wget -q --no-proxy --content-on-error {url} -O "$f"'))
        ways.append(Command("python3", f'python3 -I -c "{BY_PYTHON}" {url} "$f"'))
    return [Command(way.name, _checked(way.text, enrolment.script_digest)) for way in ways]


BY_PYTHON = (
    "import sys,urllib.request as r;"
    "open(sys.argv[2],'wb').write(r.build_opener(r.ProxyHandler({})).open(sys.argv[1]).read())"
)


def _checked(fetch: str, expected: str) -> str:
    """The script runs where it has the digest; else the answer is shown, which mostly says what is wrong."""
    shown = "head -c 600 \"$f\" | tr -d '\\000-\\010\\013-\\037\\177'; false"
    check = f"echo '{expected}  '\"$f\" | sha256sum -c --status"
    return f'f=$(mktemp) && {fetch} && if {check}; then sh "$f"; else {shown}; fi; c=$?; rm -f "$f"; (exit $c)'
