"""A simulated server whose jobs are acted out in the test's own process, without Redis and as fast as can be."""

import dataclasses
import json
import time
from pathlib import Path

import pytest

from deployments.agent import adopt, runner, spool
from deployments.agent.config import Config
from deployments.demo import contents, fleet, reboots
from deployments.demo.member import Member
from deployments.services import faults
from deployments.stacks import frozen, installed
from deployments.stacks import plan as plans
from deployments.stacks.catalogue import built_in
from deployments.stacks.draft import as_step
from deployments.stacks.options import Options
from tests.waiting import until


@pytest.fixture
def at_once(monkeypatch):
    """Pauses and restarts take no time."""
    monkeypatch.setenv("ASCEND_DEMO_SPEED", "1000")
    monkeypatch.setattr(runner, "TELL_S", 0.0)
    monkeypatch.setattr(adopt, "GO_ON_AFTER_S", 0.0)
    monkeypatch.setattr(reboots, "GOES_DOWN_S", 0.0)
    monkeypatch.setattr(reboots, "LEAST_DOWN_S", 0.01)
    monkeypatch.setattr("deployments.demo.member.LOOK_S", 0.0)


class Acted:
    """`facts`, `plan` and `run` as the console and its queue would have them. `has` changes what is there before;
    with `free` no engine holds its NPUs."""

    def __init__(self, name: str, folder: Path, *, free: bool = False, **has: object) -> None:
        self.made, self.folder, self.free = fleet.by_name(name), folder / name, free
        self.folder.mkdir(parents=True, exist_ok=True)
        if has:
            fields = {**contents.of(self.made).__dict__, **has}
            contents.write(self.folder, contents.Contents(**fields))
        self.count = 0
        self.start()

    def start(self) -> None:
        """The demo's process begins, again perhaps."""
        config = Config(
            server_id=1, name=self.made.name, redis_url="redis://", prefix="h:1", key="ab" * 32,
            state_dir=self.folder, path=self.folder / "config.json", simulated=True,
        )  # fmt: skip
        self.member = Member(config, None, self.folder / "bin")
        self.member.prepare()
        if self.free:  # no engine holds its NPUs
            self.member.engines.server = dataclasses.replace(self.made, engines=())

    def facts(self) -> dict:
        return self.member.sampler.collect()

    def installed(self) -> installed.Installed:
        return installed.read(self.facts(), self.made.spec.chip, built_in())

    def plan(self, stack: str, **options: str) -> plans.Plan:
        made = plans.make(self.installed(), built_in().stacks[stack], built_in(), Options(**options))
        return faults.restarting(made)

    def queue(self, kind: str, **params: object) -> Path:
        """Claim an attempt as the worker does; its folder."""
        self.count += 1
        attempt = f"a{self.count}-1-{self.count:08x}"
        body = {"attempt": attempt, "kind": kind, "params": params, "not_after": time.time() + 3600}
        spool.claim(self.member.config.attempts, attempt, json.dumps(body))
        return self.member.config.attempts / attempt

    def turn(self) -> None:
        self.member.is_down(time.time())
        self.member.look(time.monotonic())

    def run(self, kind: str, **params: object) -> "Log":
        folder = self.queue(kind, **params)
        until(lambda: self.turn() or spool.has_ended(folder), 60, every=0.001)
        return Log(folder)

    def install(self, stack: str, fault: str = "", **options: str) -> "Log":
        made = self.plan(stack, **options)
        assert not made.refusals and not made.gaps, (made.refusals, made.gaps)
        return self.run("install", stack=stack, plan=frozen.write(made), fault=fault)

    def titles(self, made: plans.Plan) -> list[str]:
        return [as_step(step).title.en for step in made.steps]


class Log:
    """What an attempt has told."""

    def __init__(self, folder: Path) -> None:
        raw = (folder / "lines").read_bytes()
        records = [line.split(b"\t", 2) for line in raw.splitlines()]
        self.kinds = [kind.decode() for _at, kind, _text in records]
        self.texts = [text.decode() for _at, _kind, text in records]
        self.events = [json.loads(text) for kind, text in zip(self.kinds, self.texts, strict=True) if kind == "v"]
        self.text = "\n".join(self.texts)

    @property
    def ended(self) -> dict:
        assert self.events[-1]["e"] == "ended"
        return self.events[-1]

    @property
    def reason(self) -> str:
        return self.ended["reason"][1] if self.ended["reason"] else ""

    @property
    def steps(self) -> list[tuple[str, str]]:
        """(title, state) of each step."""
        titles = {event["n"]: event["title"][1] for event in self.events if event["e"] == "step"}
        return [(titles[event["n"]], event["state"]) for event in self.events if event["e"] == "step_end"]

    @property
    def states(self) -> list[str]:
        return [state for _title, state in self.steps]
