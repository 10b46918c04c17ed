"""The programs that steps of a plan run on a server."""

import contextlib
import io
import os
import subprocess
import sys
import tarfile

import pytest

from deployments.services import bundle
from deployments.stacks import activate, cann_layer, remove, room, without_cuda
from tests.conftest import ROOT

METADATA = """Metadata-Version: 2.4
Name: vllm
Version: 0.99.0
Requires-Dist: regex
Requires-Dist: numpy
Requires-Dist: torch==2.99.0
Requires-Dist: torchvision==0.99.0
Requires-Dist: nvidia-cutlass-dsl>=4
Requires-Dist: flashinfer-python==0.9
Requires-Dist: tilelang==0.1
Requires-Dist: transformers<6,>=4.56
Requires-Dist: fastapi[standard]>=0.115.0
Requires-Dist: xgrammar==0.1; platform_machine == "aarch64"
Requires-Dist: boto3; extra == "runai"

Requires-Dist: not a header
"""


@pytest.fixture
def stack(tmp_path):
    """A folder of a stack with an environment and one set_env.sh."""
    folder = tmp_path / "stacks" / "vllm-ascend-1"
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/bin/activate").write_text("export IN_VENV=1\n")
    (folder / "set env.sh").write_text("export FROM_CANN=yes\n")
    return folder


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd=ROOT)


def test_what_vllm_asks_for_is_listed_without_torch_and_cuda(tmp_path):
    info = tmp_path / "python3.12/site-packages/vllm-0.99.0+empty.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    made = run(sys.executable, "-m", "deployments.stacks.without_cuda", str(tmp_path), str(tmp_path / "list"))
    assert (made.returncode, made.stdout) == (0, "5 requirements\n")
    assert (tmp_path / "list").read_text().splitlines() == [
        "regex", "numpy", "transformers<6,>=4.56", "fastapi[standard]>=0.115.0",
        'xgrammar==0.1; platform_machine == "aarch64"',
    ]  # fmt: skip


def test_without_a_vllm_nothing_is_listed(tmp_path, capsys):
    assert without_cuda.main([str(tmp_path), str(tmp_path / "list")]) == 1
    assert "Install it first" in capsys.readouterr().err and not (tmp_path / "list").exists()
    assert without_cuda.main([]) == 2


def test_the_activate_file_sets_up_a_shell(stack):
    assert activate.main(["write", str(stack), str(stack / "set env.sh")]) == 0
    made = run("sh", "-uec", '. "$1"; echo $FROM_CANN $IN_VENV $ASCEND_CONSOLE_STACK', "sh", str(stack / "activate"))
    assert made.stdout == "yes 1 vllm-ascend-1\n"


def test_a_stack_that_is_not_whole_gets_no_activate_file(stack, capsys):
    assert activate.main(["write", str(stack), "/no/set_env.sh"]) == 1
    assert "/no/set_env.sh" in capsys.readouterr().err and not (stack / "activate").exists()
    assert activate.main(["use", str(stack)]) == 1
    assert not (stack.parent / "current").is_symlink()


@pytest.mark.parametrize("part", ["venv", activate.TOOLS])
def test_a_stack_in_which_pip_was_killed_gets_no_activate_file(stack, capsys, part):
    info = stack / part / "lib/python3.12/site-packages/tokenizers-0.22.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: tokenizers\n")
    assert activate.main(["write", str(stack)]) == 1
    assert "cut off amid: tokenizers-0.22.1" in capsys.readouterr().err and not (stack / "activate").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")
def test_a_full_disk_is_said_in_words_and_nothing_half_written_is_used(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)
    try:
        folder = disk / "vllm-ascend-1"
        (folder / "venv/bin").mkdir(parents=True)
        (folder / "venv/bin/activate").write_text("")
        with contextlib.suppress(OSError):
            (disk / "full").write_bytes(bytes(1 << 20))
        said = run(sys.executable, "-m", "deployments.stacks.activate", "write", str(folder))
        assert said.returncode == 1 and "The disk refused a change" in said.stderr and "Traceback" not in said.stderr
        assert not (folder / "activate").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_stack_in_use_changes_at_once_and_back(stack, capsys):
    older = stack.parent / "vllm-ascend-0"
    older.mkdir()
    (older / "activate").write_text("")
    activate.main(["write", str(stack)])
    for chosen, before in ((older, ""), (stack, "before: vllm-ascend-0"), (older, "before: vllm-ascend-1")):
        assert activate.main(["use", str(chosen)]) == 0
        assert str((stack.parent / "current").readlink()) == chosen.name
        assert before in capsys.readouterr().out
    assert activate.main(["use", str(older)]) == 0 and "already" in capsys.readouterr().out


def test_something_else_called_current_is_left_alone(stack, capsys):
    activate.main(["write", str(stack)])
    (stack.parent / "current").mkdir()
    assert activate.main(["use", str(stack)]) == 1
    assert "no link" in capsys.readouterr().err and (stack.parent / "current").is_dir()


def test_a_stack_is_deleted_with_words_on_the_way_and_no_link_is_followed(stack, tmp_path, capsys, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (stack / "venv/lib").symlink_to(outside)
    (stack / "venv/one").symlink_to(outside / "kept")
    (stack.parent / "current").symlink_to(stack.name)
    monkeypatch.setattr(remove, "TELL_S", 0.0)
    assert remove.main([str(stack)]) == 0
    said = capsys.readouterr().out
    assert "1 files deleted" in said and f"{stack} is gone" in said and "current points to no stack" in said
    assert list(stack.parent.iterdir()) == [] and (outside / "kept").read_text() == "kept"


@pytest.mark.parametrize("arguments", [[], ["use"], ["write"], ["remove", "/x"], ["use", "/x", "/y"]])
def test_activate_says_what_it_takes(arguments):
    assert activate.main(arguments) == 2


def test_a_command_runs_with_the_files_read_before(stack):
    argv = cann_layer.with_env([str(stack / "set env.sh")], ["sh", "-c", 'echo "$FROM_CANN $1"', "sh", "a b; c"])
    assert run(*argv).stdout == "yes a b; c\n"
    failing = cann_layer.with_env([], ["sh", "-c", "exit 7"])
    assert run(*failing).returncode == 7


def test_room_is_measured_where_the_folder_will_lie(tmp_path, capsys):
    assert room.main([str(tmp_path / "not/yet"), "0"]) == 0
    assert room.main([str(tmp_path), str(10**9)]) == 1
    assert "too small" in capsys.readouterr().err
    assert room.main([str(tmp_path), "-1"]) == 2 and room.main([]) == 2


def test_the_programs_run_as_the_agent_has_them(tmp_path):
    """With the plain interpreter and the agent's code alone: no Django is at hand there."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        [sys.executable, "-S", "-m", "deployments.stacks.room", str(tmp_path), "0"], env=env, capture_output=True,
        text=True, cwd=tmp_path, timeout=30,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    code = "import sys, deployments.stacks.plan, deployments.stacks.verdict; print('django' in sys.modules)"
    made = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert made.stdout.strip() == "False", made.stderr


def test_the_agent_is_handed_the_data_with_the_code():
    with tarfile.open(fileobj=io.BytesIO(bundle.agent().data), mode="r:gz") as tar:
        names = tar.getnames()
    assert {f"lib/deployments/stacks/{name}" for name in ("stacks.json", "versions.py", "room.py")} <= set(names)
