"""Steps that are judged by what they print: words of success, words with a meaning, questions that nobody answers."""

import json

import pytest

from deployments.agent import growth, heard
from deployments.steps import PYTHON, Step, Text
from tests.deployments.agent_bench import AgentServer, ended, events, texts

TITLE = ["程序", "Program"]


@pytest.fixture
def server(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


def run(server, program, **fields):
    row = {"title": TITLE, "argv": [PYTHON, "-c", program], **fields}
    return server.run(kind="install", params={"stack": "x", "plan": json.dumps([row])}, timeout=60)


@pytest.mark.parametrize("end", ["", "\\n"])
def test_a_step_that_asks_a_question_fails_and_says_which(server, end):
    asks = f"import sys, time; print('rebuild ko? [y/n] ', end='{end}', flush=True); "
    program = asks + ("time.sleep(60)" if not end else "sys.exit(0 if sys.stdin.readline() else 1)")
    folder = run(server, program, unattended=True)
    assert ended(folder)["state"] == "failed" and "rebuild ko? [y/n]" in ended(folder)["reason"][1]
    assert "nobody is there to answer" in ended(folder)["reason"][1]


def test_a_step_that_only_mentions_one_goes_on(server):
    folder = run(server, "print('Continue? [y/n] y'); print('done')", unattended=True)
    assert ended(folder)["state"] == "succeeded"


@pytest.mark.parametrize(
    ("program", "fields", "said"),
    [
        ("print('package install success')", {"says": ["INSTALL success"]}, None),
        ("print('nothing')", {"says": ["install success"]}, "did not print what it prints on success"),
        ("print('package install success'); raise SystemExit(2)", {"says": ["success"], "accepts": [0, 2]}, None),
        ("raise SystemExit(3)", {"accepts": [0, 2]}, "exit code 3"),
        ("print('disk is FULL'); raise SystemExit(1)", {"means": [["is full", ["满了", "No room."]]]}, "No room."),
        ("pass", {"reads": ["/no/such/file", "x=1"]}, "does not hold “x=1”"),
        ("print('x' * 20000 + 'success')", {"says": ["success"]}, None),
    ],
)
def test_a_step_is_judged_by_what_it_prints_and_leaves(server, program, fields, said):
    folder = run(server, program, **fields)
    reason = ended(folder)["reason"]
    assert (reason is None) if said is None else (said in reason[1] and reason[0])


def test_a_step_whose_evidence_is_there_is_skipped_and_says_so(server, tmp_path):
    info = tmp_path / "install.info"
    info.write_text("a=1\nVersion = 9.1.0\n")
    row = {"title": TITLE, "argv": [], "evidence": [str(info), "version=9.1.0"]}
    folder = server.run(kind="install", params={"stack": "x", "plan": json.dumps([row])})
    assert [event["state"] for event in events(folder, "step_end")] == ["skipped"]
    assert texts(folder, "s") == [f"已满足 Satisfied: {info} · version=9.1.0"] and ended(folder)["state"] == "succeeded"
    info.write_text("version=9.1.0.1\n")
    folder = server.run(kind="install", params={"stack": "x", "plan": json.dumps([row])})
    assert ended(folder)["state"] == "failed" and "does not hold" in ended(folder)["reason"][1]


def test_a_step_that_prints_nothing_tells_how_much_has_come(monkeypatch, tmp_path):
    now = iter(range(1000))
    monkeypatch.setattr(growth.time, "monotonic", lambda: next(now))
    used = iter([5 << 20, 705 << 20])
    monkeypatch.setattr(growth.Growth, "_used", lambda self: next(used))
    found = growth.Growth(str(tmp_path / "not/yet"))
    assert [found.words(0) for _ in range(4)] == [""] * 4
    assert "700 MB more on the disk" in found.words(0)
    assert found.words(5) == ""


def test_only_steps_that_are_unattended_are_listened_to(monkeypatch):
    monkeypatch.setattr(heard, "QUESTION_S", 0.0)
    for unattended, wanted in ((True, "Password for git:"), (False, "")):
        found = heard.Heard(Step(Text("", ""), [], unattended=unattended))
        found.feed(1, b"line\nPassword for git: ")
        assert found.question() == wanted
        found.feed(1, b"secret\n")
        assert found.question() == ""
