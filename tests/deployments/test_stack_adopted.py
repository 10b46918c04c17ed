"""A stack whose environment somebody else made: its activate file leads there, and is written anew as it was."""

import subprocess
import sys

import pytest

from deployments.stacks import activate


@pytest.fixture
def adopted(tmp_path):
    folder = tmp_path / "stacks" / "vllm-ascend-0.23.0"
    set_env = tmp_path / "cann" / "set_env.sh"
    set_env.parent.mkdir()
    set_env.write_text("export OF_CANN=yes\n")
    words = ["write", str(folder), "--python", sys.executable, str(set_env)]
    assert activate.main(words) == 0
    return folder


def seen(folder):
    code = "import os, sys; print(sys.prefix, os.environ['OF_CANN'], os.environ['ASCEND_CONSOLE_STACK'])"
    words = ["sh", "-c", f'. {folder}/activate && exec python -c "$0"', code]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_it_leads_to_that_environment(adopted):
    assert seen(adopted) == [sys.prefix, "yes", adopted.name]


def test_it_can_be_used_and_written_again(adopted):
    assert activate.main(["use", str(adopted)]) == 0
    assert (adopted.parent / "current").resolve() == adopted
    before = (adopted / "activate").read_text()
    assert activate.main(["again", str(adopted)]) == 0 and (adopted / "activate").read_text() == before


def test_an_interpreter_that_is_gone_is_said(tmp_path, capsys):
    assert activate.main(["write", str(tmp_path / "stack"), "--python", "/no/such/python"]) != 0
    assert "/no/such/python" in capsys.readouterr().err
