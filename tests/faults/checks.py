"""What must be true after any fault. Each helper fails the test with what was found."""

import json
import zlib

from deployments.agent import spool
from tests.faults.scene import Scene, Told
from tests.waiting import until

ENDED = ("succeeded", "failed", "cancelled")


def check_all(scene: Scene, jobs: list[Told]) -> None:
    """Every promise, for each of the jobs; they are awaited first."""
    for told in jobs:
        check_job(scene, told)
    check_nothing_is_left(scene)


def check_job(scene: Scene, told: Told, *, notes_before: int = 0) -> None:
    """What is true of one job, after its end, which is awaited. `notes_before` are those of attempts before."""
    scene.await_ended(told)
    if told.is_cancelled and not records(scene, told.attempt):
        return check_never_ran(scene, told)
    check_lines(scene, told)
    check_ran_once(scene, told, notes_before)
    check_state(scene, told)
    return check_spool_is_free(scene, told)


def check_never_ran(scene: Scene, told: Told) -> None:
    """Cancelled before its server saw it."""
    assert scene.state_of(told)["state"] == "cancelled"
    assert not told.notes.exists()
    assert not (scene.attempts(told.server) / told.attempt).exists()


def records(scene: Scene, attempt: str) -> list[tuple[str, str]]:
    """(kind, text) of each record that the console has stored, which are numbered without a hole."""
    found: list[tuple[str, str]] = []
    for first, n, data in scene.rows(
        "select first, n, data from deployments_logchunk where attempt_id=? order by first", attempt
    ):
        assert first == len(found) + 1, f"{attempt}: a chunk begins at line {first}, {len(found)} lines are before it"
        lines = zlib.decompress(data).split(b"\n")[:-1]
        assert len(lines) == n
        found += [tuple(line.decode().split("\t", 2)[1:]) for line in lines]
    return found


def check_lines(scene: Scene, told: Told) -> None:
    """Every line once and in order; where some are missing, a marker says how many."""
    found = records(scene, told.attempt)
    at, gap, missed = 0, 0, 0  # `at` counts the lines of all steps, in the order in which they must come
    for kind, text in found:
        if kind == "g":
            gap += int(text)
        elif kind == "o":
            step, n = map(int, text.split()[0].split(":"))
            here = (step - 1) * told.lines + n
            assert here > at, f"{told.attempt}: {step}:{n} after line {at}"
            assert here - at - 1 <= gap, f"{told.attempt}: from {at} to {here} without a marker that says so ({gap})"
            missed += here - at - 1
            at, gap = here, 0
    if ended(found)["state"] == "succeeded":
        assert told.steps * told.lines - at <= gap, f"{told.attempt}: ends after line {at}, a marker says {gap}"
    scene.tally.lines += len(found)
    scene.tally.gaps += missed


def ended(found: list[tuple[str, str]]) -> dict:
    """The event that ends the log: it is there once, and last."""
    events = [json.loads(text) for kind, text in found if kind == "v"]
    assert [event["e"] for event in events].count("ended") == 1, events
    assert found[-1][0] == "v" and events[-1]["e"] == "ended", found[-3:]
    return events[-1]


def check_ran_once(scene: Scene, told: Told, before: int = 0) -> None:
    """No command ran twice, and none was ended but by us."""
    notes = told.notes.read_text().splitlines()[before:] if told.notes.exists() else []
    assert len(notes) == len(set(notes)), f"{told.attempt}: a command ran twice: {notes}"
    wanted = [f"{told.attempt} {n} {word}" for n in range(1, told.steps + 1) for word in ("began", "ended")]
    if told.is_cancelled or told.attempt in scene.killed:
        assert notes == wanted[: len(notes)], notes
    else:
        assert notes == wanted, f"{told.attempt}: {notes}"


def check_state(scene: Scene, told: Told) -> None:
    """What the console says is how the attempt ended on its server, for the reason given there."""
    shown = scene.state_of(told)
    event = ended(records(scene, told.attempt))
    assert shown["state"] == event["state"] == shown["attempt"]["state"], (shown, event)
    if told.attempt in scene.killed:
        assert event["state"] in ("failed", "succeeded", "cancelled"), event
        assert event["state"] != "failed" or "runner died" in event["reason"][1], event
    elif told.is_cancelled:
        assert event["state"] in ("cancelled", "succeeded"), event
    else:
        assert event["state"] == "succeeded", event
    assert shown["attempt"]["complete"]
    assert [step["state"] for step in shown["attempt"]["steps"] if step["state"] == "running"] == []


def check_spool_is_free(scene: Scene, told: Told) -> None:
    """The agent knows that the console has everything, and gives the room back."""
    folder = scene.attempts(told.server) / told.attempt
    until(lambda: (folder / "shipped").exists(), 90)
    kept = {"spec.json", "shipped", "lock"}  # an adopter that looks just then leaves an empty lock
    until(lambda: {path.name for path in folder.iterdir()} <= kept, 5)


def check_nothing_is_left(scene: Scene) -> None:
    """No runner and no step lives once its job has ended."""
    try:
        until(lambda: not scene.processes.strangers(), 20)
    except AssertionError as error:
        raise AssertionError(f"left over: {scene.processes.strangers()}") from error
    for server in ("kp-far", scene.here):
        assert [folder.name for folder in spool.folders(scene.attempts(server)) if spool.is_alive(folder)] == []
