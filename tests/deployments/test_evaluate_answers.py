"""Models are asked and judged by the programs of the job's steps, with engines that pretend."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.artifacts import asked, task_scores, vllm_engine
from deployments.artifacts.asked import Ask
from deployments.kinds import evaluate
from deployments.steps import BadParams
from tests.deployments.pretended_engines import left, model, stack
from tests.waiting import until

ROOT = Path(__file__).parents[2]


class Bench:
    def __init__(self, folder):
        self.folder, self.stacks = folder, stack(folder)
        self.parent, self.child = folder / "父 模型", folder / "child"
        self.work = folder / "attempt"
        self.work.mkdir()
        self.prompts = folder / "p.jsonl"
        self.prompts.write_text('"The sky is"\n{"prompt": "天空", "reference": "是蓝的"}\n')

    def params(self, **more):
        given = {"child": str(self.child), "parent": str(self.parent), "stacks": str(self.stacks),
                 "prompts": str(self.prompts), "timeout_min": 1, **more}  # fmt: skip
        return evaluate.Params(**given)

    def start(self, step, env=()):
        argv = [sys.executable if word == "{python}" else word for word in step.argv]
        own = {"ASCEND_ITEMS": str(self.work / "items"), "ASCEND_REASON": str(self.work / "reason"),
               "PYTHONPATH": str(ROOT), **step.env, **dict(env)}  # fmt: skip
        return subprocess.Popen(argv, cwd=self.work, env={**os.environ, **own}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)  # fmt: skip

    def run(self, step, env=()):
        process = self.start(step, env)
        out, _none = process.communicate(timeout=120)
        return process.returncode, out

    def all(self, env=(), **more):
        """(exit codes up to the first that is not 0, all output)."""
        codes, outs = [], ""
        for step in evaluate.steps(self.params(**more)):
            code, out = self.run(step, env)
            codes.append(code)
            outs += out
            if code:
                break
        return codes, outs

    @property
    def told(self):
        rows = [json.loads(line) for line in (self.work / "items").read_text().splitlines()]
        return [row["data"] for row in rows if row["told"] == "answer"], rows[-1]

    @property
    def reason(self):
        return json.loads((self.work / "reason").read_text())


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_two_float_models_are_asked_by_vllm_and_judged(bench):
    model(bench.parent), model(bench.child)
    codes, out = bench.all()
    assert codes == [0, 0, 0, 0], out
    answers, last = bench.told
    assert [one["id"] for one in answers] == ["line-1", "line-2"] and all(one["equal"] for one in answers)
    assert answers[1]["parent"] == " fine 天空" and answers[1]["child_perplexity"] == pytest.approx(2.71828, abs=1e-4)
    assert last["told"] == "evaluation" and last["data"]["passed"] and last["data"]["engine"] == "vllm"
    assert "prompt 2 of 2" in out and "Passed: 100.0 % of the tokens agree" in out
    assert not left(bench.parent) and not left(bench.child)
    env = json.loads((bench.child / "env").read_text())
    assert env["HF_HUB_OFFLINE"] == "1" and len(env["VLLM_API_KEY"]) == 32 and "ASCEND_ITEMS" not in env
    assert env["VLLM_API_KEY"] not in out and "--api-key" not in (bench.child / "argv").read_text()


def test_a_quantized_child_is_asked_by_the_reference_where_no_npu_is(bench):
    model(bench.parent), model(bench.child, quantized=True)
    codes, out = bench.all()
    assert codes == [0, 0, 0, 0] and "engine: reference" in out
    notes = bench.told[1]["data"]["notes"]
    assert ["注", "Noted."] in notes and any("not that vLLM-Ascend loads them" in one[1] for one in notes)


@pytest.mark.parametrize("how, words", [
    ("worse", "perplexity rose by"), ("garbled", "answers garbled where the parent's are not: 2"),
    ("nan", "answers garbled where"),
])  # fmt: skip
def test_a_child_that_is_not_good_enough_ends_well_and_does_not_pass(bench, how, words):
    model(bench.parent), model(bench.child, how)
    codes, out = bench.all()
    data = bench.told[1]["data"]
    assert codes == [0, 0, 0, 0] and not data["passed"] and words in data["sentence"][1], out


def test_an_engine_without_log_probabilities_gives_no_perplexity_and_says_so(bench):
    model(bench.parent, "unscored"), model(bench.child, "unscored")
    assert bench.all()[0] == [0, 0, 0, 0]
    data = bench.told[1]["data"]
    assert data["measured"]["perplexity_change_pct"] is None
    assert any("no log probabilities" in one[1] for one in data["notes"])


@pytest.mark.parametrize("how, words", [
    ("oom", "not enough memory"), ("killed", "The system ended the engine"), ("fails", "ended by itself (exit code 1)"),
    ("dies", "ended by itself (exit code 3)"), ("strange", "holds no text"),
])  # fmt: skip
def test_an_engine_that_fails_is_a_failed_step_with_the_cause(bench, how, words):
    model(bench.parent, how), model(bench.child)
    codes, out = bench.all()
    assert codes == [0, 1] and words in bench.reason[1], out
    assert not left(bench.parent)


@pytest.mark.parametrize("how, words", [("cannot", "It cannot."), ("fails", "missing or damaged")])
def test_so_does_the_reference(bench, how, words):
    model(bench.parent), model(bench.child, how, quantized=True)
    assert bench.all()[0] == [0, 0, 1] and words in bench.reason[1]


def test_what_never_becomes_ready_is_ended(bench, monkeypatch):
    folder = model(bench.parent, "never")
    ask = Ask(folder, model(bench.child), bench.stacks, starts_s=1.0)
    with (
        pytest.raises(asked.CannotAnswer, match="not ready within 1 s"),
        vllm_engine.serving(ask, folder, quantized=False),
    ):
        pass
    assert not left(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("how", ["never", "hangs"])
def test_a_cancel_leaves_no_process(bench, number, how):
    model(bench.parent, how), model(bench.child)
    process = bench.start(evaluate.steps(bench.params())[1])
    until(lambda: len(left(bench.parent)) == 2, 30)
    if how == "hangs":
        until(lambda: (bench.work / "answers" / "parent.jsonl").is_file(), 30)
    process.send_signal(number)
    out, _none = process.communicate(timeout=30)
    assert process.returncode == 130, out
    until(lambda: not left(bench.parent), 5)


def test_models_that_lie_elsewhere_and_missing_stacks_are_named(bench):
    model(bench.child)
    assert (
        bench.all()[0] == [1] and str(bench.parent) in bench.reason[1] and "Copy it to this server" in bench.reason[1]
    )
    model(bench.parent)
    assert bench.all(stacks=str(bench.folder / "none"))[0] == [1] and "There is no stack in use" in bench.reason[1]
    model(bench.child, quantized=True)
    assert bench.all(engine="vllm")[0] == [1] and "vLLM on CPUs cannot read" in bench.reason[1]
    (bench.stacks / "current" / "msmodelslim" / "bin" / "python").unlink()
    assert bench.all()[0] == [1] and "The engine “reference” needs" in bench.reason[1]


def test_a_bad_file_of_prompts_is_named_with_its_line(bench):
    model(bench.parent), model(bench.child)
    bench.prompts.write_text('"a"\n{"prompt": 1}\n')
    assert bench.all()[0] == [1] and "Line 2 of the prompts" in bench.reason[1]


def test_models_that_are_not_related_are_compared_with_a_warning(bench):
    model(bench.parent, hidden_size=32), model(bench.child)
    codes, out = bench.all(pasted="你好", prompts="")
    assert codes == [0, 0, 0, 0] and "differ in hidden_size" in out
    assert any("differ in hidden_size" in one[1] for one in bench.told[1]["data"]["notes"])


def test_npus_are_seen_and_held_and_change_the_arguments(bench, monkeypatch):
    params = bench.params(npus=["0000:81:00.0", "0000:82:00.0"])
    steps = evaluate.steps(params)
    assert evaluate.locks(params) == ["npu:0000:81:00.0", "npu:0000:82:00.0"]
    assert [step.npus for step in steps] == [[], params.npus, params.npus, []]
    assert all("--npus" in step.argv for step in steps) and steps[1].means
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4,5")
    assert vllm_engine.visible_devices() == 2
    ask = evaluate.ask_of(params)
    argv = vllm_engine.arguments(ask, bench.child, 8123, 2, quantized=True, length=2048)
    assert argv[argv.index("--quantization") + 1] == "ascend" and argv[argv.index("--tensor-parallel-size") + 1] == "2"
    assert argv[argv.index("--host") + 1] == "127.0.0.1" and "--trust-remote-code" not in argv
    plain = vllm_engine.arguments(ask, bench.parent, 8123, 1, quantized=False, length=2048)
    assert "--quantization" not in plain and "--tensor-parallel-size" not in plain
    model(bench.child, quantized=True)
    assert ask.chosen() == "vllm" and Ask(bench.parent, bench.child, bench.stacks).chosen() == "reference"


def test_the_length_is_at_most_what_the_model_takes(bench):
    ask = evaluate.ask_of(bench.params())
    assert vllm_engine.length_of(ask, model(bench.child)) == 512
    assert vllm_engine.length_of(ask, bench.folder) == 2048
    (bench.folder / "config.json").write_text("[" * 100_000)  # nested deeper than anything is read
    assert vllm_engine.length_of(ask, bench.folder) == 2048


def test_an_ask_survives_its_argument_list(bench):
    params = bench.params(
        engine="reference", remote_code=True, tool="lm_eval", tasks="gsm8k,arc", dtype="float32", max_tokens=9
    )
    import argparse

    parser = argparse.ArgumentParser()
    asked.add_arguments(parser)
    ask = evaluate.ask_of(params)
    assert asked.from_arguments(parser.parse_args(asked.argv(ask))) == ask


@pytest.mark.parametrize("field, change", [
    ("parent", {"parent": "/same", "child": "/same"}), ("pasted", {"pasted": "a", "prompts": "/a"}),
    ("npus", {"engine": "reference", "npus": ["0000:81:00.0"]}), ("tasks", {"tool": "lm_eval"}),
    ("child", {"child": "/a/../b"}), ("prompts", {"prompts": "relative"}),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(field, change):
    with pytest.raises(BadParams) as caught:
        evaluate.ask_of(evaluate.Params(**{"child": "/c", "parent": "/p", "prompts": "", **change}))
    assert field in dict(caught.value.problems)


def test_tools_are_called_by_their_own_arguments(bench, capsys):
    for tool, first in (("lm_eval", ["python", "-m", "lm_eval"]), ("evalscope", ["evalscope", "eval"])):
        ask = evaluate.ask_of(bench.params(tool=tool, tasks="gsm8k,arc", limit=5))
        argv = task_scores.arguments(ask, "child", 8123, "secret", bench.folder / "out")
        assert argv[: len(first)] == first and argv[-2:] == ["--limit", "5"] and str(bench.folder / "out") in argv
        assert ("secret" in argv) is (tool == "evalscope") and any("http://127.0.0.1:8123/v1" in word for word in argv)
    (bench.stacks / "current/venv/lib/python3.11/site-packages/lm_eval").mkdir(parents=True)
    comma = evaluate.ask_of(bench.params(tool="lm_eval", tasks="gsm8k", child="/a,b=c"))
    task_scores.run(comma, "child", 8123, "secret", bench.folder)
    assert "holds a comma" in capsys.readouterr().err


@pytest.mark.parametrize("data, scores", [
    ({"results": {"gsm8k": {"exact_match,strict-match": 0.4, "exact_match,flexible-extract": 0.5}}}, {"gsm8k": 0.5}),
    ({"dataset_name": "gsm8k", "score": 0.61, "metrics": []}, {"gsm8k": 0.61}),
    ({"results": {"x": {"acc,none": "high"}, "y": 3}}, {}), ({"dataset_name": 3, "score": True}, {}),
    ([1], {}), ("", {}),
])  # fmt: skip
def test_scores_are_read_from_what_a_tool_leaves(tmp_path, data, scores):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "results.json").write_text(json.dumps(data))
    (tmp_path / "broken.json").write_text("{")
    assert task_scores.scores(tmp_path) == scores and task_scores.scores(tmp_path / "none") == {}


def test_a_task_is_scored_where_the_operator_has_put_a_tool(bench):
    model(bench.parent), model(bench.child)
    codes, out = bench.all(tool="lm_eval", tasks="gsm8k")
    assert codes == [0, 0, 0, 0] and "The stack in use has no lm_eval" in out
    site = bench.stacks / "current" / "venv" / "lib" / "python3.11" / "site-packages" / "lm_eval"
    site.mkdir(parents=True)
    python = bench.stacks / "current" / "venv" / "bin" / "python"
    tool = site / "tool.py"
    tool.write_text(
        "import json, os, pathlib, sys\n"
        "out = pathlib.Path(sys.argv[sys.argv.index('--output_path') + 1]) / 'evaluated'\n"
        "out.mkdir(parents=True)\n"
        "score = 0.5 if 'parent' in str(out) else 0.4\n"
        "assert len(os.environ['OPENAI_API_KEY']) == 32\n"
        "row = {'alias': 'gsm8k', 'exact_match,strict-match': score}\n"
        "(out / 'results_1.json').write_text(json.dumps({'results': {'gsm8k': row}}))\n"
    )
    text = python.read_text()
    python.write_text(text.replace("exec", f'[ "$2" = lm_eval ] && exec "{sys.executable}" "{tool}" "$@"\nexec', 1))
    codes, out = bench.all(tool="lm_eval", tasks="gsm8k")
    data = bench.told[1]["data"]
    assert codes == [0, 0, 0, 0] and data["measured"]["scores"] == {"gsm8k": [0.5, 0.4]}, out
    assert not data["passed"] and "the task's score fell by 20.00 %" in data["sentence"][1]
