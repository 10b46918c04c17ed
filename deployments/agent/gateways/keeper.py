"""Keeps one gateway: its router and its nginx, the router's list of engines, the keys, and what they used.

    python -m deployments.agent.gateways.keeper <folder> --config <config.json>

A process of its own session, that outlives the agent and the console. It asks neither of them for anything; when it is
killed, nginx and router go on, and the next keeper adopts them.
"""

import argparse
import dataclasses
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from deployments import locks
from deployments.agent import spool
from deployments.agent.environment import passed_on
from deployments.agent.gateways import balancer, front, swap
from deployments.agent.gateways import folder as folders
from deployments.agent.gateways.folder import Programs
from deployments.agent.gateways.program import Program, bound
from deployments.agent.gateways.usage import Usage
from deployments.serving import gateway_conf
from deployments.serving.gateway_conf import Spec

log = logging.getLogger("gateway")

TURN_S = 0.25
BALANCER_S = 1.0
TELL_S = 1.0
USAGE_S = 1.0
LOGS = ("router.out", "router_old.out", "router_next.out", "nginx.out", "nginx.log", "keeper.out")
END_S = 20.0  # for requests that run when it is stopped
LAUNCHER = Path(__file__).with_name("router_main.py")


class Keeper:
    """`turn` does what is due. `state` is starting | ready | degraded | failed | stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.router = Program(folder, swap.NOW)
        self.swap = swap.Swap(folder)
        self.at = swap.of(folder, swap.NOW)  # None: where the spec says
        self.nginx = Program(folder, "nginx")
        self.usage = Usage(folder)
        self.instance = folders.instance(folder)
        self.spec: Spec | None = None
        self.programs: Programs | None = None
        self.stamp: tuple[int, int] | None = None
        self.joining = balancer.Joining()
        self.engines: dict[str, dict[str, Any]] | None = None  # None: the router does not answer
        self.fault = ""
        self.due = dict.fromkeys(("balancer", "tell", "usage"), 0.0)

    def turn(self) -> None:
        self._look_for_news()
        if self.spec is None or self.programs is None:
            self._tell_when_due()
            return
        self._keep_programs(self.spec, self.programs)
        if self._is_due("balancer", BALANCER_S):
            self._balance(self.spec)
            self._swap(self.spec, self.programs)
        if self._is_due("usage", USAGE_S):
            self.usage.turn(self.spec.day_offset_s)
            self.usage.begin_anew(lambda: self.nginx.signal(signal.SIGUSR1))
            for name in LOGS:
                bound(self.folder / name)
        self._tell_when_due()

    def _is_due(self, name: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self.due[name]:
            return False
        self.due[name] = now + every_s
        return True

    def _look_for_news(self) -> None:
        """Take a changed spec: keys at once, nginx's configuration with a reload where it is another."""
        try:
            about = (self.folder / "spec.json").stat()
        except OSError:
            return
        if (stamp := (about.st_mtime_ns, about.st_ino)) == self.stamp:
            return
        self.stamp = stamp
        found = folders.read(self.folder)
        if found is None:
            self.fault = "spec.json cannot be used"
            return
        before, (spec, programs) = self.spec, (self._placed(found[0], found[1]), found[1])
        if programs.nginx:
            front.write_keys(self.folder, spec)
            self._apply_front(spec, programs)
        self.spec, self.programs = spec, programs
        if before and self._wants_other_router(before, spec):
            self._change_router(found[0], programs)
        self.due = dict.fromkeys(self.due, 0.0)

    def _placed(self, spec: Spec, programs: Programs) -> Spec:
        """With the ports on which its router is now."""
        if self.at is None or not programs.nginx:
            return spec
        return dataclasses.replace(spec, router_port=self.at.requests, metrics_port=self.at.metrics)

    def _change_router(self, wanted: Spec, programs: Programs) -> None:
        """Beside the one that answers, where nginx is before it; else in its place."""
        assert self.spec is not None
        if not programs.nginx or not self.router.is_alive():
            self.router.end(signal.SIGTERM, 5.0)
            return
        own = swap.Ports(wanted.router_port, wanted.metrics_port)
        at = own if own != (self.spec.router_port, self.spec.metrics_port) else swap.free()
        spec = dataclasses.replace(wanted, router_port=at.requests, metrics_port=at.metrics)
        self.swap.begin(at, self._router_argv(spec, programs), environment())

    def _swap(self, spec: Spec, programs: Programs) -> None:
        well = {url for url, about in (self.engines or {}).items() if about["healthy"]}
        answer = self.swap.look([one.url for one in spec.engines], well, apart=spec.is_apart)
        if answer == "ready":
            self.at, self.router = self.swap.at, self.swap.take_over(self.router)
            self.spec = self._placed(spec, programs)
            self._apply_front(self.spec, programs)
        elif answer == "failed":  # what it says is seen where it alone is tried
            self.swap.give_up()
            self.router.end(signal.SIGTERM, 5.0)
        else:
            self.swap.drain()

    def _apply_front(self, spec: Spec, programs: Programs) -> None:
        path = self.folder / "nginx.conf"
        before = path.read_bytes() if path.exists() else b""
        changed = front.write_conf(self.folder, spec, programs)
        self.fault = front.fault(self.folder, programs) if changed else self.fault
        if self.fault and before:  # what runs goes on as it is
            spool.write_synced(path, before)
        elif not front.is_taken(self.folder) and self.nginx.signal(signal.SIGHUP):
            front.note_taken(self.folder)

    def _wants_other_router(self, before: Spec, spec: Spec) -> bool:
        """Engines alone go by the router's API, but where prefill and decode are apart."""
        alone = bool(self.programs and not self.programs.nginx)

        def words(one: Spec) -> tuple[object, ...]:
            if not alone:  # on which ports it is, is the keeper's own affair
                one = dataclasses.replace(one, router_port=1, metrics_port=2)
            return (*gateway_conf.router_arguments(one, alone=alone), one.engine_key)

        return words(before) != words(spec)

    def _keep_programs(self, spec: Spec, programs: Programs) -> None:
        env = environment()
        self.router.about = {"at": [spec.router_port, spec.metrics_port]}
        if self.router.keep(self._router_argv(spec, programs), env):
            self.engines, self.due["balancer"] = None, time.monotonic() + 0.5
        if programs.nginx and not self.fault and self.nginx.keep(front.argv(self.folder, programs), env):
            front.note_taken(self.folder)

    def _router_argv(self, spec: Spec, programs: Programs) -> list[str]:
        """The key goes by a file of this folder: arguments can be read by everybody on the machine."""
        alone = not programs.nginx
        spool_key(self.folder, "" if alone else spec.engine_key)
        words = gateway_conf.router_arguments(spec, alone=alone)
        return [programs.python, "-s", str(LAUNCHER), str(self.folder / "engine_key"), *words]

    def _balance(self, spec: Spec) -> None:
        """Let the router have exactly our engines; what it makes of them is its own affair."""
        port = spec.port if self.programs and not self.programs.nginx else spec.router_port
        try:
            has = balancer.engines(port)
            self.engines = has
            if spec.is_apart:
                return
            wished = [one.url for one in spec.engines]
            for url in has.keys() - set(wished):
                balancer.remove(port, url)
            self.joining.begin(port, [url for url in wished if url not in has])
        except balancer.Away:
            self.engines = None

    def _tell_when_due(self) -> None:
        if self._is_due("tell", TELL_S):
            spool.write_whole(self.folder / "now.json", json.dumps(self.now(), ensure_ascii=False).encode())

    def now(self) -> dict[str, Any]:
        state, reason = self._judge()
        spec = self.spec
        return {
            "gateway": int(self.folder.name[1:]),
            "deployment": spec.deployment if spec else None,
            "instance": self.instance,
            "version": spec.version if spec else 0,
            "state": state,
            "reason": reason,
            "restarts": max(self.router.restarts, 0) + max(self.nginx.restarts, 0),
            "engines": [{"url": url, **about} for url, about in (self.engines or {}).items()],
            "usage": self.usage.told(),
            "at": round(time.time(), 3),
        }

    def _judge(self) -> tuple[str, list[str] | None]:
        if self.spec is None or self.programs is None:
            return "failed", ["网关的设置无法读取，请再次应用。", "Its settings cannot be read. Apply them again."]
        if self.fault:
            return "failed", [f"nginx 不接受配置：{self.fault}", f"nginx does not take its configuration: {self.fault}"]
        if self.programs.nginx and not self.nginx.is_alive():
            said = self.nginx.last_words()
            return "starting", [f"nginx 没有运行。{said}", f"nginx does not run. {said}".strip()]
        if self.engines is None:
            said = "" if self.router.is_alive() else self.router.last_words()
            return "starting", [f"vllm-router 尚未应答。{said}", f"vllm-router does not answer yet. {said}".strip()]
        well = sum(one["healthy"] for one in self.engines.values())
        wished = len(self.spec.engines)
        if well < wished:
            return "degraded", [f"{wished} 个引擎中 {well} 个应答。", f"{well} of {wished} engines answer."]
        if not wished:
            return "degraded", ["还没有引擎。", "It has no engine yet."]
        return "ready", None

    def stop(self) -> None:
        """nginx first and gently: requests that run have END_S."""
        self.nginx.end(signal.SIGQUIT, END_S)
        self.swap.stop()
        self.router.end(signal.SIGTERM, 5.0)
        if self.spec is not None:
            self.usage.turn(self.spec.day_offset_s)
        told = {**self.now(), "state": "stopped", "reason": None, "engines": []}
        spool.write_whole(self.folder / "now.json", json.dumps(told, ensure_ascii=False).encode())


def environment() -> dict[str, str]:
    """What router and nginx inherit: no proxy, for engines are near."""
    env = {**passed_on(), "LC_ALL": "C.UTF-8"}
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "PYTHONPATH"):
        env.pop(name, None)
    return env


def spool_key(folder: Path, key: str) -> None:
    path = folder / "engine_key"
    try:
        if path.read_text() == key:
            return
    except OSError:
        pass
    spool.write_synced(path, key.encode())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.gateways.keeper")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=Path, help="names the agent whose gateway this is")
    folder = parser.parse_args(argv).folder.absolute()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    lock = locks.take_lock(folder / "lock")
    if lock is None:
        return 0
    told_to_end: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda which, _frame: told_to_end.append(which))
    keeper = Keeper(folder)
    while folders.wish(folder) == "run":
        try:
            keeper.turn()
        except OSError as error:  # a full disk: what runs goes on
            log.warning("%s", error)
        if told_to_end:  # it alone ends; what it keeps is adopted by the next
            os.close(lock)
            return 0
        time.sleep(TURN_S)
    keeper.stop()
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
