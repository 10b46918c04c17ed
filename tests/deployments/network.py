"""A second machine on a network, which joins this console."""

import os
import shutil
from contextlib import contextmanager

import pytest

from tests.deployments.joining import Host
from tests.netns import Namespace

HERE_OCTET = 80 + os.getpid() % 150


def needed(*programs):
    """Fails where one is missing, for .ci/run installs them."""
    for program in programs:
        assert shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin"), f"{program} is not installed: .ci/run"


@contextmanager
def second_machine(n=0):
    """(the Namespace, the Host there); its agent is nobody's."""
    try:
        there = Namespace(f"10.213.{HERE_OCTET}.{4 * n + 1}", f"10.213.{HERE_OCTET}.{4 * n + 2}")
    except OSError as error:
        pytest.skip(str(error))
    made = Host(before=there.inside, root=True)
    made.env["AGENT_USER"] = "nobody"
    try:
        yield there, made
    finally:
        made.close()
        there.close()
