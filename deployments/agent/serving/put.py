"""`python -m deployments.agent.serving.put e12 …`: write down what the engine is, for its keeper."""

import base64
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

from deployments.agent.config import Config
from deployments.agent.indexed import opened
from deployments.agent.serving import engine, npus, program, stop
from deployments.agent.serving.program import Stopped
from deployments.agent.serving.settle import PUT
from deployments.agent.tools import Run, run_tool
from deployments.serving import command, container, nodes, settings
from deployments.serving.asked import Ask
from deployments.serving.fields import Settings
from deployments.steps import BadParams

MAX_RESTARTS, ASK_S = 5, 15.0
# `2: eth0    inet 192.0.2.7/24 brd 192.0.2.255 scope global eth0\       valid_lft forever`
ADDRESS = re.compile(r"\d+:\s+(\S+)\s+inet6?\s+([0-9a-fA-F.:]+)/")


def work(ask: Ask, config: Config) -> int:
    ask = with_interface(ask)
    own, chosen = engine.of(config, ask.name), wanted(ask)
    levels = idle_levels(ask)
    if own.is_kept():  # one that has given up stays: it would go by what it read before
        stop.stop(own)
    Path(PUT).touch()
    own.write(spec(ask, chosen, key(ask, config), levels), levels)
    if not own.is_kept():
        own.wish("stop")  # nobody starts it before the next step
    program.say(f"已写入 {own.folder}/spec.json。", f"Written: {own.folder}/spec.json.")
    print(" ".join(nodes.argv(chosen, nodes.place(ask, len(ask.npus)))), flush=True)
    return 0


def wanted(ask: Ask) -> Settings:
    """The revision's settings. Raises Stopped where they are of another version of ours."""
    try:
        return settings.read(ask.settings)
    except BadParams as error:
        words = "; ".join(f"{name}: {text.zh}" for name, text in error.problems[:5])
        english = "; ".join(f"{name}: {text.en}" for name, text in error.problems[:5])
        raise Stopped(
            f"代理不认识这些设置（{words}）。请升级代理，或新建一个版本。",
            f"The agent does not know these settings ({english}). Upgrade the agent, or make a new revision.",
        ) from error


def with_interface(ask: Ask, run: Run = run_tool) -> Ask:
    """Between nodes, the interface that has our own address, where nobody has named one."""
    if len(ask.addresses) < 2 or ask.interface:
        return ask
    output = run(["ip", "-o", "addr"], env={**os.environ, "LC_ALL": "C"}, timeout_s=ASK_S)
    return dataclasses.replace(ask, interface=interface_of(output.text, ask.addresses[ask.rank]))


def interface_of(text: str, address: str) -> str:
    """Of what `ip -o addr` prints; '' where none has the address."""
    found = (match for line in text.splitlines() if (match := ADDRESS.match(line)))
    return next((match[1] for match in found if match[2] == address), "")


def key(ask: Ask, config: Config) -> str:
    """What the engine asks of who uses it. Raises Stopped."""
    if not ask.sealed:
        return ""
    try:
        return str(json.loads(opened(config, base64.b64decode(ask.sealed, validate=True)))["api_key"])
    except (ValueError, KeyError, TypeError) as error:
        raise Stopped(
            "作业里的引擎密钥打不开：它是用这台服务器以前的密钥封的。请从部署的页面重新启动副本。",
            "The key of the engine in this job cannot be opened: it was sealed with an earlier key of this server. "
            "Start the replica again from the page of its deployment.",
        ) from error


def idle_levels(ask: Ask) -> dict[str, int]:
    """MB in use on each NPU before the engine comes."""
    if ask.device == "cpu" or not ask.npus:
        return {}
    return {one.name: one.used_mb for one in npus.look() if one.name in ask.npus and one.used_mb is not None}


def spec(ask: Ask, chosen: Settings, api_key: str, levels: dict[str, int]) -> dict[str, Any]:
    """What the keeper starts; of a container its client, in the foreground."""
    where = nodes.place(ask, len(ask.npus))
    inner, env = nodes.argv(chosen, where), command.environment(chosen, where)
    made: dict[str, Any] = {
        "replica": ask.replica,
        "deployment": ask.deployment,
        "revision": ask.revision,
        "argv": inner,
        "env": env,
        "api_key": api_key,
        "address": ask.address,
        "port": 0 if ask.is_follower else ask.port,  # who answers nobody is asked by nobody
        "npus": list(ask.npus),
        "idle_mb": ask.idle_mb or max(levels.values(), default=None),
        "device": ask.device,
        "route": ask.route,
        "ready_s": ask.ready_s,
        "served_model_name": command.name(chosen, ask.model),
        "activate": ask.activate,
        "max_restarts": MAX_RESTARTS,
        "model": ask.model,
        "family": ask.family,
        "rank": ask.rank,
        "head": f"{where.head}:{ask.port}" if ask.is_follower and ask.port else "",
    }
    if ask.route == "systemd":
        made["unit"] = f"ascend-console-{ask.name}.service"
    if ask.in_container:
        made |= {
            "container": f"ascend-console-{ask.name}",
            "image": chosen.image,
            "inner": inner,
            "several": len(ask.addresses) > 1,
            "activate": "",
        }
        made["argv"] = container.command(made)
    return made


if __name__ == "__main__":
    raise SystemExit(program.run(work))
