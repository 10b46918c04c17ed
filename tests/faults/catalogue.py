"""The catalogue: every fault, and every moment of a job's life at which it may come. Each is a plain function.

A fault does its harm, keeps it up for `scene.hold_s` where it can last, and mends it before it returns. It is given
the jobs that are under way. A moment queues jobs, lets the fault come, and returns the jobs.
"""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.faults.scene import Scene, Told
from tests.waiting import until

Fault = Callable[[Scene, list[Told]], None]
Moment = Callable[[Scene, Fault], list[Told]]


class CannotHappen(Exception):
    """A fault that this machine or user cannot bring about."""


# faults


def send(pid: int, number: int) -> None:
    """A signal to a process that another fault may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill(scene: Scene, jobs: list[Told], part: str) -> None:
    """SIGKILL; its supervisor starts it again."""
    scene.strike(part, signal.SIGKILL)


def stop(scene: Scene, jobs: list[Told], part: str) -> None:
    """SIGSTOP for a while."""
    pid = scene.strike(part, signal.SIGSTOP)
    time.sleep(scene.hold_s)
    send(pid, signal.SIGCONT)


def kill_agent(scene: Scene, jobs: list[Told]) -> None:
    """The supervisor of the far agent, and all its parts with it."""
    scene.strike("agent", signal.SIGKILL)
    scene.far.wait()
    time.sleep(scene.random.uniform(0, scene.hold_s))
    scene.start_far()


def kill_console(scene: Scene, jobs: list[Told]) -> None:
    """The supervisor of the console: web, ingest, scheduler, worker, Valkey and the own agent go with it."""
    scene.strike("console supervisor", signal.SIGKILL)
    scene.console.process.wait()
    time.sleep(scene.random.uniform(0, scene.hold_s))
    scene.start_console()


def kill_runner(scene: Scene, jobs: list[Told]) -> None:
    """The runner of one of the jobs, if there is one yet."""
    told = scene.random.choice(jobs)
    pid = scene.runner(told)
    if pid:
        scene.killed.add(told.attempt)
        send(pid, signal.SIGKILL)


def stop_runner(scene: Scene, jobs: list[Told]) -> None:
    pid = scene.runner(scene.random.choice(jobs))
    if pid:
        send(pid, signal.SIGSTOP)
        time.sleep(scene.hold_s)
        send(pid, signal.SIGCONT)


def crash_valkey_over_and_over(scene: Scene, jobs: list[Told]) -> None:
    """Gone, with every connection refused, for about 15 s: three times killed as soon as it was started again."""
    for _ in range(3):
        scene.strike("valkey", signal.SIGKILL)
        time.sleep(0.3)


def kill_valkey_without_its_users(scene: Scene, jobs: list[Told]) -> None:
    """As a Redis does that keeps its users in no file."""
    users = scene.folder / "var" / "valkey" / "users.acl"
    users.write_text(re.sub(r"(?m)^user h\d+ .*\n", "", users.read_text()))
    scene.strike("valkey", signal.SIGKILL)


def empty_valkey(scene: Scene, jobs: list[Told]) -> None:
    """It comes back with nothing of what it held: queues, streams, acknowledgements."""
    pid = scene.strike("valkey", signal.SIGKILL)
    until(lambda: pid not in scene.processes.all())
    shutil.rmtree(scene.folder / "var" / "valkey" / "appendonlydir")


def hang_valkey_beyond_every_time_out(scene: Scene, jobs: list[Told]) -> None:
    """No answer and no end of connections for 27 s: agents wait at most 25 s for an answer, the console 10 s."""
    pid = scene.strike("valkey", signal.SIGSTOP)
    time.sleep(27)
    send(pid, signal.SIGCONT)


def fill_the_disk(scene: Scene, jobs: list[Told]) -> None:
    """Not a byte is left where the far server's spools are."""
    if not scene.disk_is_small:
        raise CannotHappen("a disk of its own needs root, and a container that lets it")
    ballast = scene.state / "ballast"
    try:
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        mended_at = time.monotonic() + scene.hold_s
        while time.monotonic() < mended_at:  # what is freed meanwhile is taken as well
            with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
                file.write(b"x" * 4096)
            time.sleep(0.02)
    finally:
        ballast.unlink(missing_ok=True)


def jump_clock(scene: Scene, jobs: list[Told], seconds: float) -> None:
    """The far server's clock says something else for a while, then the truth again."""
    scene.set_clock(seconds)
    time.sleep(scene.hold_s)
    scene.set_clock(0)


def lock_database(scene: Scene, jobs: list[Told]) -> None:
    """Nobody can write for longer than SQLite waits (5 s)."""
    database = sqlite3.connect(scene.database, timeout=60, isolation_level=None)
    with contextlib.closing(database):
        database.execute("BEGIN IMMEDIATE")
        time.sleep(max(8.0, scene.hold_s))
        database.execute("ROLLBACK")


def hold_network(scene: Scene, jobs: list[Told]) -> None:
    """Nothing passes between the far server and Redis; what was on its way arrives later."""
    scene.network.proxy.hold()
    time.sleep(scene.hold_s)
    scene.network.proxy.restore()


def reset_network(scene: Scene, jobs: list[Told]) -> None:
    """Connections break, what was on its way is lost, and new ones are refused."""
    scene.network.proxy.reset()
    time.sleep(scene.hold_s)
    scene.network.proxy.restore()


def unplug(scene: Scene, jobs: list[Told]) -> None:
    """The far server's interface goes down."""
    if not scene.network.is_real:
        raise CannotHappen("network namespaces need root, and a container that lets it")
    scene.network.unplug()
    time.sleep(scene.hold_s)
    scene.network.plug_in()


def unplug_beyond_every_time_out(scene: Scene, jobs: list[Told]) -> None:
    """The same until every side has given the other up."""
    if not scene.network.is_real:
        raise CannotHappen("network namespaces need root, and a container that lets it")
    scene.network.unplug()
    time.sleep(30)
    scene.network.plug_in()


KILLED = (
    "web", "ingest", "scheduler", "console worker", "valkey",
    "worker", "link", "sampler", "own agent", "own worker", "own link",
)  # fmt: skip
STOPPED = ("web", "ingest", "valkey", "worker", "link", "sampler", "agent", "own worker", "own link")

FAULTS: dict[str, Fault] = {
    **{f"kill {part}": partial(kill, part=part) for part in KILLED},
    **{f"stop {part}": partial(stop, part=part) for part in STOPPED},
    "kill agent": kill_agent,
    "kill console": kill_console,
    "kill runner": kill_runner,
    "stop runner": stop_runner,
    "kill valkey without its users": kill_valkey_without_its_users,
    "empty valkey": empty_valkey,
    "crash valkey over and over": crash_valkey_over_and_over,
    "hang valkey beyond every time-out": hang_valkey_beyond_every_time_out,
    "fill the disk": fill_the_disk,
    "clock forward": partial(jump_clock, seconds=7200.0),
    "clock back": partial(jump_clock, seconds=-7200.0),
    "lock database": lock_database,
    "hold network": hold_network,
    "reset network": reset_network,
    "unplug": unplug,
    "unplug beyond every time-out": unplug_beyond_every_time_out,
}
MUCH_LIKE_ANOTHER = {"unplug beyond every time-out"}  # and as long: among the random ones only
LONG = {"hang valkey beyond every time-out", "unplug beyond every time-out", "crash valkey over and over"}


def together(*faults: Fault) -> Fault:
    """All of them at once."""

    def act(scene: Scene, jobs: list[Told]) -> None:
        with contextlib.ExitStack() as others:
            for fault in faults[1:]:
                others.enter_context(meanwhile(fault, scene, jobs))
            faults[0](scene, jobs)

    return act


# moments


@contextlib.contextmanager
def meanwhile(fault: Fault, scene: Scene, jobs: list[Told]) -> Iterator[threading.Thread]:
    """The fault comes while the block runs; what it raises is raised at the end of the block."""
    raised: list[BaseException] = []

    def act() -> None:
        try:
            fault(scene, jobs)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
    if raised:
        raise raised[0]


def some_jobs(scene: Scene) -> list[Told]:
    """Two on the far server, of different speed, and one on the console's own."""
    return [
        scene.queue("kp-far", lines=600, pause_s=0.002),
        scene.queue("kp-far", lines=300, pause_s=0.004, steps=3),
        scene.queue(scene.here, lines=500, pause_s=0.002),
    ]


def while_printing(scene: Scene, fault: Fault) -> list[Told]:
    jobs = some_jobs(scene)
    for told in jobs:
        scene.await_running(told)
    time.sleep(scene.random.uniform(0, 1.5))
    fault(scene, jobs)
    return jobs


def while_starting(scene: Scene, fault: Fault) -> list[Told]:
    """Between the operator's click and the first line, or a little later."""
    jobs = some_jobs(scene)
    time.sleep(scene.random.uniform(0, 0.25))
    fault(scene, jobs)
    return jobs


def while_ending(scene: Scene, fault: Fault) -> list[Told]:
    """Short jobs one after the other, so that several begin and end while the fault comes and lasts."""
    jobs = [scene.queue("kp-far", lines=40, steps=2), scene.queue(scene.here, lines=40, steps=2)]
    time.sleep(scene.random.uniform(0, 0.6))
    fault(scene, jobs)
    return jobs


def while_queueing(scene: Scene, fault: Fault) -> list[Told]:
    """Jobs are queued while the fault lasts, as far as the console takes them; else after it."""
    jobs = [scene.queue("kp-far", lines=300)]
    with meanwhile(fault, scene, list(jobs)):
        time.sleep(scene.random.uniform(0, 0.3))
        jobs += [scene.queue("kp-far", lines=100, steps=1) for _ in range(3)]
        jobs.append(scene.queue(scene.here, lines=100, steps=1))
    return jobs


def while_cancelling(scene: Scene, fault: Fault) -> list[Told]:
    """One job is cancelled as the fault comes; the other goes on."""
    jobs = [scene.queue("kp-far", lines=4000, pause_s=0.005), scene.queue("kp-far", lines=300)]
    for told in jobs:
        scene.await_running(told)
    with meanwhile(fault, scene, jobs):
        time.sleep(scene.random.uniform(0, 0.5))
        scene.cancel(jobs[0])
    return jobs


def while_waiting(scene: Scene, fault: Fault) -> list[Told]:
    """The second waits for the lock of the first, which ends about when the fault comes."""
    jobs = [scene.queue("kp-far", lines=150, locks=["model"]) for _ in range(3)]
    time.sleep(scene.random.uniform(0, 1.2))
    fault(scene, jobs)
    return jobs


MOMENTS: dict[str, Moment] = {
    "while printing": while_printing,
    "while starting": while_starting,
    "while ending": while_ending,
    "while queueing": while_queueing,
    "while cancelling": while_cancelling,
    "while waiting": while_waiting,
}
