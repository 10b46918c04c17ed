"""What the tests of the kind `check` share: simulated servers as hosts, reports, small tools."""

from deployments.agent import processes
from deployments.demo import fleet, root, tools
from deployments.kinds import check
from deployments.kinds.check_probes import __main__ as program
from deployments.kinds.check_probes.finding import VERDICTS
from deployments.kinds.check_probes.host import Answer, Host

GROUPS = [name for name, _ in check.GROUPS]
ALARM, A910, DUO, LOST, DUMB, OLD, DOWN, HELD = 3, 4, 2, 14, 15, 12, 19, 7  # numbers of demo servers


class DemoHost(Host):
    """A simulated server whose tools answer in this process."""

    def __init__(self, server, folder, *, deep=False):
        super().__init__(folder, deep=deep)
        self.server = server
        self.env = root.environment(server, self.root, self.root.parent / "tools")
        self.state = self.root.parent / f"{server.name}-state"
        self.state.mkdir(exist_ok=True)

    def run(self, *argv, timeout_s=15.0):
        assert argv[0] in root.PROGRAMS, "a demo server would run this machine's own"
        return Answer(*tools.answer(self.server, list(argv), 1_760_000_000.0))


def demo_host(folder, index, **options):
    """The simulated server of that number with its files below `folder`."""
    server = fleet.server(index)
    root.ensure(server, folder / server.name)
    return DemoHost(server, folder / server.name, **options)


def report(host, groups=GROUPS):
    """Items by key, and whether no probe broke."""
    told = []
    sound = [program.run(group, host, told.append) for group in groups]
    return {made["key"]: made for made in told}, all(sound)


def is_whole(made):
    sentences = made["remedy"] or ["x", "x"]
    return (
        made["verdict"] in VERDICTS
        and all(made["title"])
        and all(sentences)
        and made["found"]
        and (made["remedy"] is None) == (made["verdict"] == "ok")
    )


def put_tool(folder, name, script):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def is_running(pid):
    found = processes.stat(pid)
    return found is not None and found.state not in "ZX"


class FileHost(Host):
    """A server of files below a folder; `tools` maps the words of a call to (exit code, text)."""

    def __init__(self, folder, files=(), tools=(), env=()):
        super().__init__(folder)
        self.tools, self.env, self.stacks = dict(tools), dict(env), "/opt/ascend-console/stacks"
        for name, text in dict(files).items():
            self.write(name, text)

    def write(self, name, text=""):
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text(text)

    def run(self, *argv, timeout_s=15.0):
        found = next((self.tools[key] for key in (" ".join(argv), argv[0]) if key in self.tools), None)
        return Answer(*found) if found else None


NPU = {"/sys/bus/pci/devices/0000:c1:00.0/uevent": "PCI_ID=19E5:D802\n"}
DRIVER = {**NPU, "/usr/local/Ascend/driver/version.info": "Version=25.5.0\n"}
