import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from deployments.agent import logs, processes, spool
from tests.deployments.agent_bench import AgentServer, ended, texts
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def supervise(tmp_path):
    """Start a supervisor process of the given programs (Python text each); its output is in `out`."""
    started = []

    def start(programs, *, log_folder=False, ready=None, **options):
        lines = ", ".join(
            f"Program({name!r}, [sys.executable, '-uc', {textwrap.dedent(text)!r}], {(ready or {}).get(name, '')})"
            for name, text in programs.items()
        )
        script = tmp_path / f"supervisor-{len(started)}.py"
        folder = f"Path({str(tmp_path / 'logs')!r})" if log_folder else None
        script.write_text(
            "import sys\nfrom pathlib import Path\n"
            "from deployments.agent import supervisor\n"
            "from deployments.agent.supervisor import AlreadyRunning, NotReady, Program, Supervisor\n"
            f"supervisor.SETTLED_S = {options.get('settled_s', 60)}\n"
            f"made = Supervisor([{lines}], Path({str(tmp_path / 'lock')!r}), {folder}, lambda: print('all ready'))\n"
            "try: sys.exit(made.run())\n"
            "except (AlreadyRunning, NotReady) as error: print(error); sys.exit(3)\n"
        )
        out = tmp_path / f"out-{len(started)}"
        with out.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-u", str(script)],
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        process.out = out
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def has(process, words, count=1):
    return process.out.read_text().count(words) >= count


def pid_in(path):
    return until(lambda: path.exists() and path.read_text() and int(path.read_text()))


def is_gone(pid):
    found = processes.stat(pid)
    return found is None or found.state in "ZX"


def beating(path):
    return f"import os, time; open({str(path)!r}, 'w').write(str(os.getpid())); time.sleep(300)"


def test_lines_carry_the_programs_name(supervise):
    process = supervise(
        {"web": "print('hello'); import time; time.sleep(300)", "ingest": "import time; time.sleep(300)"}
    )
    assert until(lambda: has(process, "web    | hello\n"))
    assert until(lambda: has(process, "all ready"))


def test_a_program_that_ends_is_started_again_ever_later(supervise, tmp_path):
    times = tmp_path / "times"
    process = supervise(
        {"flaky": f"import time; open({str(times)!r}, 'a').write(f'{{time.time()}}\\n'); raise SystemExit(7)"}
    )
    until(lambda: times.exists() and len(times.read_text().split()) == 4)
    at = [float(word) for word in times.read_text().split()]
    gaps = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert gaps[0] > 0.4 and gaps[1] > 0.9 and gaps[2] > 1.9
    assert has(process, "flaky | ended with exit code 7", 3)


def test_a_program_that_was_up_for_long_is_started_again_soon(supervise, tmp_path):
    times = tmp_path / "times"
    supervise(
        {"slow": f"import time; open({str(times)!r}, 'a').write(f'{{time.time()}}\\n'); time.sleep(.3)"}, settled_s=0.2
    )
    until(lambda: times.exists() and len(times.read_text().split()) == 4)
    at = [float(word) for word in times.read_text().split()]
    assert at[3] - at[2] < 2.0


def test_sigterm_ends_all_in_reverse_order(supervise, tmp_path):
    order = tmp_path / "order"
    note = """
        import signal, sys, time
        def end(*a):
            open({path!r}, 'a').write('{name} ')
            sys.exit()
        signal.signal(15, end)
        print('up')
        time.sleep(300)
    """
    process = supervise({name: note.format(path=str(order), name=name) for name in ("first", "second", "third")})
    until(lambda: has(process, "| up", 3))
    process.terminate()
    assert process.wait(10) == 0
    assert order.read_text().split() == ["third", "second", "first"]


def test_who_ignores_sigterm_is_killed_at_a_second_signal(supervise, tmp_path):
    pid = tmp_path / "pid"
    process = supervise({"stubborn": f"import signal; signal.signal(15, 1)\n{beating(pid)}"})
    child = pid_in(pid)
    process.terminate()
    time.sleep(0.5)
    assert process.poll() is None and not is_gone(child)
    process.terminate()
    assert process.wait(5) == 0
    assert is_gone(child)


def test_grandchildren_go_with_their_program(supervise, tmp_path):
    pid = tmp_path / "pid"
    parent = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {beating(pid)!r}]); time.sleep(300)"
    )
    process = supervise({"parent": parent})
    grandchild = pid_in(pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    until(lambda: is_gone(grandchild))


def test_children_die_with_a_supervisor_that_is_killed(supervise, tmp_path):
    pid = tmp_path / "pid"
    process = supervise({"child": f"import signal; signal.signal(15, 1); signal.signal(1, 1)\n{beating(pid)}"})
    child = pid_in(pid)
    process.kill()
    process.wait()
    assert until(lambda: is_gone(child))


def test_a_second_supervisor_says_that_it_runs_already(supervise):
    first = supervise({"a": "import time; time.sleep(300)"})
    until(lambda: has(first, "all ready"))
    second = supervise({"a": "import time; time.sleep(300)"})
    assert second.wait(5) == 3
    assert second.out.read_text().startswith(f"It runs already (process {first.pid}, lock ")
    first.terminate()
    first.wait(10)
    third = supervise({"a": "import time; time.sleep(300)"})
    until(lambda: has(third, "all ready"))


def test_the_next_program_waits_until_the_one_before_is_ready(supervise, tmp_path):
    flag = tmp_path / "flag"
    process = supervise(
        {"slow": f"import time; time.sleep(.7); open({str(flag)!r}, 'w').close(); time.sleep(300)",
         "next": f"import os; print('flag', os.path.exists({str(flag)!r})); import time; time.sleep(300)"},
        ready={"slow": f"ready=Path({str(flag)!r}).exists"},
    )  # fmt: skip
    assert until(lambda: has(process, "next | flag True"))


def test_a_program_that_is_never_ready_ends_the_start_in_a_sentence(supervise):
    process = supervise(
        {"db": "print('port is taken'); import time; time.sleep(300)"}, ready={"db": "ready=lambda: False, ready_s=0.8"}
    )
    assert process.wait(10) == 3
    words = process.out.read_text()
    assert "db was not ready within 0.8 s; everything was stopped. It said last:\nport is taken" in words
    assert "all ready" not in words


def test_a_missing_program_is_said_and_tried_again(supervise):
    process = supervise({"x": ""})
    process.kill()
    script = Path(process.args[-1])
    script.write_text(script.read_text().replace("[sys.executable, '-uc', '']", "['no-such-program']"))
    process = supervise({"y": "import time; time.sleep(300)"})
    process.kill()
    out = subprocess.run(
        ["timeout", "1.5", sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert out.stdout.count("x | no-such-program: No such file or directory") >= 2


def test_logs_go_to_files_and_turn_over(supervise, tmp_path):
    process = supervise({"web": "print('hello'); import time; time.sleep(300)"}, log_folder=True)
    path = tmp_path / "logs" / "web.log"
    until(lambda: path.exists() and path.read_text().endswith(" hello\n"))
    assert "hello" not in process.out.read_text()
    log = logs.LogFile(tmp_path / "small.log", max_bytes=1000)
    for n in range(100):
        log.write(b"%03d %s\n" % (n, b"x" * 95))
    kept = sorted(path.name for path in tmp_path.glob("small.log*"))
    assert kept == ["small.log", "small.log.1", "small.log.2", "small.log.3"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.glob("small.log*"))
    assert (tmp_path / "small.log").read_bytes().split(b"\n")[-2].startswith(b"099")


def test_a_terminal_that_closes_does_not_stop_the_programs(tmp_path):
    with Path("/dev/full").open("wb", buffering=0) as full:
        prefixer = logs.Prefixer("a | ", full)
        prefixer.feed(b"one\ntwo\n")
    assert list(prefixer.last) == ["one", "two"]


# The agent as a whole


@pytest.fixture
def agent(tmp_path, valkey):
    server = AgentServer(tmp_path, valkey.url)
    server.client = valkey.client()
    yield server
    server.close()


def start_agent(server):
    return server.start_raw([sys.executable, "-m", "deployments.agent", "--config", str(server.config.path)], "agent")


def children_of(pid):
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [child for child in pids if (found := processes.stat(child)) and found.ppid == pid and found.state != "Z"]


def test_the_agent_dies_whole_and_its_runners_live(agent):
    process = start_agent(agent)
    until(lambda: len(children_of(process.pid)) == 3 and agent.client.smembers("h:7:rq:workers"))
    body = agent.payload("{}", kind="check")  # an unknown parameter: told, not run
    agent.enqueue(agent.client, body)
    until(lambda: ended(agent.config.attempts / json.loads(body)["attempt"]))
    running = agent.run("import time; time.sleep(1.5); print('done')", wait=False)
    until(lambda: spool.is_alive(running))
    children = children_of(process.pid)
    process.kill()
    process.wait()
    until(lambda: all(is_gone(child) for child in children))
    until(lambda: ended(running))
    assert texts(running) == ["done"]


def test_a_second_agent_for_the_same_server_is_refused(agent):
    first = start_agent(agent)
    until(lambda: len(children_of(first.pid)) == 3)
    second = start_agent(agent)
    assert second.wait(10) == 2
    assert "It runs already" in (agent.state / "agent.log").read_text()


def test_a_part_that_is_killed_comes_back(agent):
    process = start_agent(agent)
    until(lambda: len(children_of(process.pid)) == 3)
    victim = children_of(process.pid)[0]
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(children_of(process.pid)) == 3 and victim not in children_of(process.pid))
    process.terminate()
    assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("{", "JSON cannot be parsed"),
        ("[]", "JSON is not an object"),
        ("{}", "server_id is missing"),
        ('{"server_id": "7"}', "server_id is of the wrong type"),
        ('{"server_id": true}', "server_id is of the wrong type"),
    ],
)
def test_a_bad_config_is_a_sentence(tmp_path, text, words):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    out = subprocess.run(
        [sys.executable, "-m", "deployments.agent", "--config", str(path)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert out.returncode == 2
    assert words in out.stderr and "Traceback" not in out.stderr
