"""What must be true after any fault. Each helper fails the test with what was found."""

import json
import zlib
from pathlib import Path

from deployments.agent import spool
from tests.faults.scene import Scene, Told
from tests.waiting import until

ENDED = ("succeeded", "failed", "cancelled")


def check_all(scene: Scene, jobs: list[Told]) -> None:
    """Every promise, for each of the jobs; they are awaited first."""
    for told in jobs:
        scene.await_ended(told)
    for told in jobs:
        check_lines(scene, told)
        check_ran_once(scene, told)
        check_state(scene, told)
    check_spools_are_free(scene, jobs)
    check_nothing_is_left(scene)


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
    step, number, gap, missed = 1, 0, 0, 0
    for kind, text in found:
        if kind == "g":
            gap += int(text)
            continue
        if kind != "o":
            continue
        at_step, _, rest = text.partition(":")
        at_step, at = int(at_step), int(rest.split()[0])
        missing = at - number - 1 if at_step == step else (told.lines - number) + (at_step - step - 1) * told.lines + at - 1
        assert missing >= 0, f"{told.attempt}: {at_step}:{at} after {step}:{number}"
        assert missing <= gap, f"{told.attempt}: {missing} lines are missing before {at_step}:{at}, a marker says {gap}"
        missed += missing
        step, number, gap = at_step, at, 0
    scene.tally.lines += len(found)
    scene.tally.gaps += missed
    if ended(found)["state"] == "succeeded":
        missing = (told.steps - step) * told.lines + told.lines - number
        assert missing <= gap, f"{told.attempt}: {missing} lines are missing at the end, a marker says {gap}"


def ended(found: list[tuple[str, str]]) -> dict:
    """The event that ends the log: it is there once, and last."""
    events = [json.loads(text) for kind, text in found if kind == "v"]
    assert [event["e"] for event in events].count("ended") == 1, events
    assert found[-1][0] == "v" and events[-1]["e"] == "ended", found[-3:]
    return events[-1]


def check_ran_once(scene: Scene, told: Told) -> None:
    """No command ran twice, and none was ended but by us."""
    notes = told.notes.read_text().splitlines() if told.notes.exists() else []
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


def check_spools_are_free(scene: Scene, jobs: list[Told]) -> None:
    """The agent knows that the console has everything, and gives the room back."""
    for told in jobs:
        folder = scene.attempts(told.server) / told.attempt
        # An attempt that was cancelled before it left has no folder.
        until(lambda folder=folder: not folder.exists() or (folder / "shipped").exists(), 90)
        assert sorted(path.name for path in Path(folder).glob("*")) in ([], ["shipped", "spec.json"])


def check_nothing_is_left(scene: Scene) -> None:
    """No runner and no step lives once its job has ended."""
    try:
        until(lambda: not scene.processes.strangers(), 20)
    except AssertionError as error:
        raise AssertionError(f"left over: {scene.processes.strangers()}") from error
    for server in ("kp-far", scene.here):
        assert [folder.name for folder in spool.folders(scene.attempts(server)) if spool.is_alive(folder)] == []
