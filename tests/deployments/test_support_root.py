"""What the root helper gives to a support bundle: fixed places alone, no link and no second name, nothing left."""

import io
import os
import sys
import tarfile
import time
import types

import pytest

from deployments.agent import root_helper
from tests.waiting import until


@pytest.fixture
def helper(tmp_path, monkeypatch):
    """Its functions with folders of ours, and what it puts out."""
    out = io.BytesIO()
    monkeypatch.setattr(root_helper, "OWN", str(tmp_path / "own"))
    monkeypatch.setattr(root_helper, "must_be_roots", lambda path: None)
    monkeypatch.setattr(root_helper, "is_program", lambda path: os.path.exists(path))  # noqa: PTH110
    monkeypatch.setattr(root_helper, "is_pipe", lambda descriptor: False)
    monkeypatch.setattr(root_helper, "SUPPORT_ROOM", 4)
    monkeypatch.setattr(root_helper, "PATIENCE_S", 0.2)
    monkeypatch.setattr(root_helper, "SUPPORT", {"plog": [str(tmp_path / "log")]})
    monkeypatch.setattr(root_helper, "MSNPUREPORT", (str(tmp_path / "msnpureport"),))
    monkeypatch.setattr(root_helper, "signal", types.SimpleNamespace(
        **{**vars(root_helper.signal), "signal": lambda *_words: None}))  # fmt: skip
    output = types.SimpleNamespace(buffer=out)
    monkeypatch.setattr(root_helper, "sys", types.SimpleNamespace(stdout=output, stderr=sys.stderr, exit=sys.exit))
    return out


def files(out):
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        return {member.name.rpartition("/")[2]: tar.extractfile(member).read() for member in tar}


def test_only_plain_files_with_one_name_are_given_newest_first_and_bounded(helper, tmp_path):
    log = tmp_path / "log"
    (log / "deep").mkdir(parents=True)
    (log / "deep" / "a.log").write_text("fresh")
    (log / "old.log").write_text("old")
    os.utime(log / "old.log", (1000, 1000))
    (tmp_path / "secret").write_text("mine")
    (log / "link.log").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", log / "second.log")
    (log / "out").symlink_to(tmp_path)
    os.mkfifo(log / "pipe")
    assert root_helper.support("plog")("a1-1-00000000", str(int(time.time() - 60)), "1") == 0
    assert files(helper) == {"a.log": b"fresh"}


def test_a_place_that_is_a_link_or_not_there_gives_nothing(helper, tmp_path):
    (tmp_path / "log").symlink_to("/etc")
    assert root_helper.support("plog")("a1-1-00000000", "0", "1") == 69
    assert files(helper) == {}


def test_device_logs_are_exported_given_and_taken_away(helper, tmp_path):
    program = tmp_path / "msnpureport"
    program.write_text(
        "#!/bin/sh\nmkdir -p 2026/slog; echo device >2026/slog/dev-0.log; printf 'a\\0b' >2026/x.bin\nexit 3\n"
    )
    program.chmod(0o755)
    (tmp_path / "own" / "support-left").mkdir(parents=True)
    with pytest.raises(root_helper.Refused, match="ended with code 3"):
        root_helper.give_device("a1-1-00000000", "0", "9")
    assert files(helper) == {"dev-0.log": b"device\n", "x.bin": b"a\0b"}, "what there is comes all the same"
    assert [one.name for one in (tmp_path / "own").iterdir()] == ["support.lock"]


def test_a_server_without_msnpureport_and_a_tool_that_hangs(helper, tmp_path, monkeypatch):
    with pytest.raises(root_helper.Refused) as refused:
        root_helper.give_device("a1-1-00000000", "0", "9")
    assert refused.value.code == 69
    program = tmp_path / "msnpureport"
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid; sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(root_helper, "DEVICE_S", 0.3)
    with pytest.raises(root_helper.Refused, match="did not end"):
        root_helper.give_device("a1-1-00000000", "0", "9")
    pid = (tmp_path / "pid").read_text().strip()
    until(lambda: root_helper.session_of(pid) == -1)


@pytest.mark.parametrize(
    "words",
    [
        ["support-plog", "a1-1-00000000", "0", "/etc"],
        ["support-plog", "a1-1-00000000", "../..", "1"],
        ["support-device", "a1-1-00000000", "0"],
        ["support-dmesg", "a1-1-00000000", "-c"],
        ["support-hccn", "x; id", "0", "1"],
    ],
)
def test_nothing_but_its_forms_is_taken(words):
    assert isinstance(root_helper.choose(words), str)
