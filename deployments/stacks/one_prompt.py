"""`python -m deployments.stacks.one_prompt --on npu|cpu [--dtype NAME] ACTIVATE FOLDER …`: let the stack's own vLLM
answer one prompt, with the first of the folders that holds a model.

It ends with NOT_TRIED where there is no model, or no NPU without a process, of those that the job holds where it holds
some: that says nothing against the stack.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from deployments.stacks import one_npu
from deployments.stacks.cann_layer import with_env
from deployments.stacks.one_npu import told
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

FOLDER = "smoke-model"  # where one is looked for: below the folder of the stacks, and below /models
ANSWERS_S = 600.0
ENDS_S = 10.0
SAYS = r"\d+ tokens in [\d.]+ s"  # of answer_once.py
INSIDE = Path(__file__).with_name("answer_once.py")  # the stack's Python runs it, which knows nothing of ours


def model_in(folders: Sequence[str]) -> str:
    """The first folder that holds a model which this account can read, '' where none does."""
    return next((one for one in folders if os.access(f"{one}/config.json", os.R_OK)), "")


def no_model(folders: Sequence[str]) -> Text:
    named = ", ".join(folders)
    return Text(
        f"{named} 里没有可读的模型（config.json），因此只试了导入。",
        f"There is no model (config.json) that can be read in {named}, so only the import was tried.",
    )


def did_not_answer(model: str, code: int) -> Text:
    return Text(
        f"{model} 里的模型没有回答（退出码 {code}），这个软件栈不会使用，在用的软件栈不变。请看它最后的输出；"
        "若问题在模型，请换一个 smoke_model，再重试。",
        f"The model in {model} did not answer (exit code {code}), so this stack is not used and the one in use stays. "
        "See the last lines; if it is the model, name another smoke_model, then try again.",
    )


def too_slow(model: str, seconds: float) -> Text:
    return Text(
        f"{model} 里的模型在 {seconds:g} 秒内没有回答，已被停止；这个软件栈不会使用，在用的软件栈不变。"
        "请看它最后的输出，或换一个小一些的 smoke_model，再重试。",
        f"The model in {model} did not answer within {seconds:g} s and was stopped; this stack is not used and the one "
        "in use stays. See the last lines, or name a smaller smoke_model, then try again.",
    )


def ask(activate: str, model: str, dtype: str, env: Mapping[str, str], seconds: float = ANSWERS_S) -> Text:
    """Have the stack's Python ask the model. What went wrong, FINE when it answered."""
    argv = with_env([activate], ["python", str(INSIDE), model, dtype])
    began = time.monotonic()
    # A group of its own: an engine's further processes go with it.
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=dict(env), preexec_fn=os.setpgrp)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        _signal(process.pid, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_S)
        return too_slow(model, seconds)
    finally:
        _signal(process.pid, signal.SIGKILL)  # what is left of the group
        process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)
    return did_not_answer(model, code if code >= 0 else 128 - code) if code else FINE


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deployments.stacks.one_prompt")
    parser.add_argument("--on", choices=("npu", "cpu"), required=True)
    parser.add_argument("--dtype", choices=("auto", "float16"), default="auto")
    parser.add_argument("activate")
    parser.add_argument("folders", nargs="+")
    asked = parser.parse_args(arguments)
    model = model_in(asked.folders)
    if not model:
        return told(no_model(asked.folders))
    # Those are of our own Python.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ASCEND_REASON")}
    if asked.on == "npu":
        index = one_npu.found()
        if index is None:
            return told(one_npu.none_free(os.environ.get(one_npu.HELD, "")))
        env["ASCEND_RT_VISIBLE_DEVICES"] = str(index)
        print(f"NPU {index}: {model}", flush=True)
    return ended(ask(asked.activate, model, asked.dtype, env))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
