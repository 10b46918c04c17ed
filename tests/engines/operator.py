"""Somebody who queues jobs on the pages of a real console for a host with real engines, and waits for their end."""

import os
import re
import subprocess
import sys

from tests.deployments.joining import Browser
from tests.engines import tiny_model
from tests.waiting import until

STACK = "cpu-0.32.0"
INSTALLED_WITHIN_S = 3600


def found_beside():
    """Folders of wheels that this machine's own pip takes beside its index: torch without CUDA lies in one."""
    argv = [sys.executable, "-m", "pip", "config", "get", "global.find-links"]
    return os.environ.get("PIP_FIND_LINKS") or subprocess.run(argv, capture_output=True, text=True).stdout.strip()


class Operator:
    """Queues jobs on the pages of stacks and waits for their end."""

    def __init__(self, console):
        self.console, self.browser, self.token = console, Browser(console), console.token()

    def ended(self, kind, stack=STACK, within=INSTALLED_WITHIN_S):
        path = f"/stacks/{stack}/{kind}/kp-60/"
        seen = re.search(r'name="seen" value="([0-9a-f]+)"', self.browser.get(path))
        return self.followed(self.browser.send(path, **({"seen": seen[1]} if seen else {}))[0], within)

    def followed(self, path, within):
        """The job of that page as REST tells it, when it has ended."""
        number = int(re.fullmatch(r"/jobs/(\d+)/", path)[1])

        def job():
            found = self.console.call(f"/jobs/{number}", self.token)
            return found if found["state"] in ("succeeded", "failed", "lost") else None

        return until(job, within, 0.5)

    def plan(self):
        return self.console.call(f"/servers/kp-60/stack-plan?stack={STACK}", self.token)


def joined(operator, host):
    """The host joins, with its pip's settings and a tiny model; where stacks go there."""
    _page, command = operator.browser.command("kp-60")
    done = host.run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    settings = f"[global]\nfind-links = {found_beside()}\n"
    put = 'mkdir -p $HOME/.config/pip && echo "$TEXT" > $HOME/.config/pip/pip.conf'
    noted = host.run(put, TEXT=settings, HOME=str(host.agent))  # the home of the agent, and so of its pip
    assert noted.returncode == 0, noted
    root = host.agent / "state" / "stacks"
    assert host.run(f"mkdir -p {root}").returncode == 0
    tiny_model.make(root / "smoke-model")  # the stack is used only when it has answered a prompt with it
    return root
