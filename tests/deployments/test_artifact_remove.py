"""Deleting a model: only that content, and nobody else's files; who uses it is named."""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.artifacts import digests, in_use, remove
from deployments.artifacts.read import read
from deployments.stacks.said import FINE
from tests.deployments.models_on_disk import model


@pytest.fixture
def state(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("ASCEND_STATE", str(folder))
    monkeypatch.setenv("ASCEND_ITEMS", str(folder / "items"))
    return folder


@pytest.fixture
def there(tmp_path, state):
    """A model and its fingerprint."""
    folder = model(tmp_path / "data" / "千问 3")
    (folder / ".cache" / "huggingface").mkdir(parents=True)
    (folder / ".cache" / "huggingface" / "anything.xyz").write_text("x")
    (folder / "LICENSE").write_text("x")
    return folder, read(folder).fingerprint


def delete(there):
    return remove.remove(str(there[0]), there[1])


def told(state):
    items = state / "items"
    return [json.loads(line) for line in items.read_text().splitlines()] if items.exists() else []


def test_a_model_goes_with_its_manifest_and_the_console_is_told(there, state):
    digests.keep(state, there[0], digests.make(there[0]))
    assert delete(there) == FINE
    assert list(there[0].parent.iterdir()) == [] and not digests.kept(state, there[0]).exists()
    assert told(state) == [{"told": "artifact_gone", "data": {"path": str(there[0])}}]
    assert delete(there) == FINE  # once more: it is gone already


def check_stays(there, state, *words):
    before = sorted(os.walk(there[0]))
    why = delete(there)
    assert all(word in why.en for word in words), why.en
    assert why.zh and sorted(os.walk(there[0])) == before and told(state) == []
    assert [one.name for one in there[0].parent.iterdir()] == [there[0].name]


def test_another_content_stays(there, state):
    (there[0] / "config.json").write_text(json.dumps({"model_type": "other"}))
    check_stays(there, state, "another content")


@pytest.mark.parametrize("name", ["notes.docx", "backup.tar", "results.csv", "id_rsa"])
def test_files_of_somebody_stay(there, state, name):
    (there[0] / name).write_text("mine")
    check_stays(there, state, "no part of a model", name)


def test_another_model_inside_a_pipe_and_a_folder_behind_a_link_stay(there, state, tmp_path):
    model(there[0] / "inner")
    os.mkfifo(there[0] / "pipe.json")
    (tmp_path / "elsewhere").mkdir()
    (there[0] / "linked").symlink_to(tmp_path / "elsewhere")
    check_stays(there, state, "inner/", "pipe.json", "linked/")


def test_what_a_link_in_it_points_to_stays(there, state, tmp_path):
    (tmp_path / "blob").write_text("{}")
    (there[0] / "generation_config.json").symlink_to(tmp_path / "blob")
    assert delete((there[0], read(there[0]).fingerprint)) == FINE
    assert (tmp_path / "blob").read_text() == "{}"


def test_a_link_is_not_followed(there, state, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(there[0])
    assert "is a link" in remove.remove(str(link), there[1]).en
    assert there[0].is_dir() and link.is_symlink()


@pytest.mark.parametrize("path", ["relative", "/etc/x", "/", "/data/../etc", "/a\nb"])
def test_paths_that_are_none_of_a_model(path, state):
    assert remove.remove(path, "a" * 64) != FINE


USERS = {
    "open": "file = open(sys.argv[1], 'rb')",
    "mapped": "import mmap, os\n"
    "n = os.open(sys.argv[1], os.O_RDONLY); m = mmap.mmap(n, 0, prot=mmap.PROT_READ); os.close(n)",
    "stands in it": "import os; os.chdir(os.path.dirname(sys.argv[1]))",
}


@pytest.mark.parametrize("how", USERS)
def test_a_process_that_uses_it_is_named(there, state, how):
    shard = next(there[0].glob("*.safetensors"))
    program = f"import sys\n{USERS[how]}\nprint('ready', flush=True)\nsys.stdin.read()"
    user = subprocess.Popen(
        [sys.executable, "-c", program, str(shard)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert user.stdout.readline() == "ready\n"
        check_stays(there, state, f"PID {user.pid}", "in use")
    finally:
        user.communicate()
    assert delete(there) == FINE


def test_one_that_opens_it_between_the_looks_is_noticed(there, state, monkeypatch):
    looks = iter([in_use.Looked([], 0), in_use.Looked([in_use.Use(7, "python", "x.safetensors")], 0)])
    monkeypatch.setattr(in_use, "look", lambda folder: next(looks))
    check_stays(there, state, "PID 7 (python)")


def test_a_process_is_found_by_the_numbers_of_its_files(there, tmp_path):
    proc = tmp_path / "proc"
    for pid in ("11", "12"):
        (proc / pid / "fd").mkdir(parents=True)
        (proc / pid / "maps").write_text("")
    (proc / "12" / "fd").rmdir()  # ended meanwhile
    shard = next(there[0].glob("*.safetensors"))
    (proc / "11" / "fd" / "5").symlink_to(shard)
    (proc / "11" / "comm").write_text("vllm\n")
    assert in_use.look(there[0], proc=proc).uses == [in_use.Use(11, "vllm", shard.name)]


def test_what_an_earlier_try_has_left_goes_too(there, state, monkeypatch):
    broken = iter([OSError(30, "Read-only file system")])
    real = remove.shutil.rmtree

    def fails_once(path, **more):
        if not more and (error := next(broken, None)):
            raise error
        real(path, **more)

    monkeypatch.setattr(remove.shutil, "rmtree", fails_once)
    assert "was not deleted whole" in delete(there).en and not there[0].exists()
    assert delete(there) == FINE and list(there[0].parent.iterdir()) == []


def test_a_map_without_a_descriptor_is_a_use(tmp_path):
    file = tmp_path / "m" / "a.safetensors"
    file.parent.mkdir()
    file.write_bytes(b"x" * 4096)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ):
        text = Path("/proc/self/maps").read_text()
    found = [path for _place, path in in_use._mapped(text) if path == str(file)]
    assert found == [str(file)]
