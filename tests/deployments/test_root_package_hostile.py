"""What the root helper makes of packages that somebody else may have touched, of a full disk, and of being killed."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deployments.agent import root_helper
from deployments.agent.root_helper import Refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NAME = "Ascend-hdk-910b-npu-driver_25.5.2_linux-aarch64.run"
CONTENT = b"#!/bin/bash\nexit 0\n" + b"x" * 300_000
SHA = hashlib.sha256(CONTENT).hexdigest()
NOBODY = 65534


@pytest.fixture
def place(monkeypatch):
    """Folders as root's are, and the package in its own."""
    top = Path(tempfile.mkdtemp(prefix="root-package-", dir="/opt"))
    top.chmod(0o755)
    (top / "packages").mkdir(mode=0o755)
    monkeypatch.setattr(root_helper, "PACKAGES", str(top / "packages"))
    monkeypatch.setattr(root_helper, "OWN", str(top / "own"))
    monkeypatch.setattr(root_helper, "LOG", str(top / "log"))
    (top / "packages" / NAME).write_bytes(CONTENT)
    yield top
    subprocess.run(["umount", str(top / "own")], capture_output=True)
    shutil.rmtree(top)


def refusal(name=NAME, digest=SHA):
    with root_helper.only_one(), pytest.raises(Refused) as refused:
        root_helper.copied(name, digest)
    assert not Path(root_helper.OWN, "package").exists()
    return refused.value


def link(path, there):
    there.write_bytes(CONTENT)
    path.symlink_to(there)


def hard_link(path, there):
    there.write_bytes(CONTENT)
    os.chown(there, NOBODY, NOBODY)
    path.hardlink_to(there)


def pipe(path, _there):
    os.mkfifo(path)


def owned(path, _there):
    path.write_bytes(CONTENT)
    os.chown(path, NOBODY, NOBODY)


def writable(path, _there):
    path.write_bytes(CONTENT)
    path.chmod(0o664)


def changed(path, _there):
    path.write_bytes(CONTENT[:-1] + b"y")


@pytest.mark.parametrize(
    ("put", "said"),
    [(link, "is a link"), (hard_link, "others than root"), (pipe, "others than root"), (owned, "others than root"),
     (writable, "others than root"), (lambda path, _there: path.mkdir(), "is a folder"),
     (changed, "another file than planned"), (lambda *_paths: None, "there is no package")],
)  # fmt: skip
def test_a_package_that_is_not_roots_own_file_is_never_copied(place, put, said):
    path = place / "packages" / NAME
    path.unlink()
    put(path, place / "elsewhere")
    assert said in str(refusal())


def test_a_folder_that_others_may_write_or_lead_elsewhere_is_refused(place, tmp_path, monkeypatch):
    (place / "packages").chmod(0o777)
    assert "others than root" in str(refusal())
    (place / "packages").chmod(0o755)
    os.chown(tmp_path, NOBODY, NOBODY)
    (tmp_path / NAME).write_bytes(CONTENT)
    (place / "link").symlink_to(tmp_path)
    monkeypatch.setattr(root_helper, "PACKAGES", str(place / "link"))
    assert "others than root" in str(refusal())


def test_what_is_exchanged_meanwhile_is_not_what_runs(place, monkeypatch):
    real = root_helper.copy_of

    def slow(source, path):
        (place / "packages" / NAME).write_bytes(b"#!/bin/bash\ntouch /evil\n")  # in place: the very file that is open
        return real(source, path)

    monkeypatch.setattr(root_helper, "copy_of", slow)
    assert "another file than planned" in str(refusal())
    monkeypatch.setattr(root_helper, "copy_of", real)
    (place / "packages" / NAME).write_bytes(CONTENT)
    with root_helper.only_one():
        copy = Path(root_helper.copied(NAME, SHA))
        (place / "packages" / NAME).write_bytes(b"#!/bin/bash\ntouch /evil\n")
        assert copy.read_bytes() == CONTENT and copy.stat().st_mode & 0o777 == 0o500
        assert copy.parent.stat().st_mode & 0o777 == 0o700 and copy.parent.stat().st_uid == 0


def test_a_full_disk_is_said_and_leaves_nothing(place):
    (place / "own").mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "none", str(place / "own")], check=True)
    found = refusal()
    assert found.code == root_helper.NO_ROOM and "no room for a copy" in str(found)


def test_what_a_killed_run_left_goes_and_two_at_once_are_refused(place):
    with root_helper.only_one():
        root_helper.copied(NAME, SHA)  # and nobody takes it away
        with pytest.raises(Refused, match="another package is being installed"):
            root_helper.only_one()
    with root_helper.only_one():
        assert Path(root_helper.copied(NAME, SHA)).read_bytes() == CONTENT


RUN = """
import sys, time
from deployments.agent import root_helper
root_helper.DEAF_S = 0.5
real = root_helper.subprocess.Popen
def late(*words, **more):
    made = real(*words, **more)
    time.sleep(float(sys.argv[2]))
    return made
root_helper.subprocess.Popen = late
sys.exit(root_helper.run(["/bin/sh", "-c", sys.argv[1]], {}, to_its_end=True, answer=sys.argv[3].encode()))
"""


def start(script, wait_s=0.0, answer="", **more):
    words = [sys.executable, "-c", RUN, script, str(wait_s), answer]
    return subprocess.Popen(words, cwd=Path(__file__).parents[2], stdin=subprocess.DEVNULL, **more)


def test_an_installer_goes_on_to_its_end_while_nobody_reads_what_it_prints(tmp_path):
    ours, theirs = os.pipe()
    process = start(f"yes | head -c 400000; touch {tmp_path}/whole", stdout=theirs)
    try:
        assert process.wait(20) == 0 and (tmp_path / "whole").exists()
    finally:
        process.kill()
        os.close(ours)
        os.close(theirs)


def test_every_word_arrives_where_somebody_reads_however_late():
    process = start("yes | head -c 400000; echo end", stdout=subprocess.PIPE)
    assert process.stdout.read().endswith(b"\nend\n") and process.wait(20) == 0


def test_a_tool_that_is_over_before_it_hears_the_answer_is_no_crash():
    process = start("exit 3", 0.5, "Y\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _said, errors = process.communicate(timeout=20)
    assert process.returncode == 3 and errors == b""
