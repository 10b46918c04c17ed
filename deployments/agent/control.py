"""`ascend-console status|start|stop|restart|leave` on a server that has joined."""

import argparse
import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from deployments.agent import chosen, fetch, install, signing
from deployments.agent.config import ConfigError, load, spoken
from deployments.steps import Text


def say(zh: str, en: str) -> None:
    print(spoken(Text(zh, en)), flush=True)


def status(found: install.Install) -> int:
    running = install.is_running(found)
    if running:
        say(f"代理正在运行，控制台：{found.console}", f"The agent runs; its console is {found.console}.")
    else:
        say("代理没有运行。启动：ascend-console start", "The agent does not run. Start it: ascend-console start")
    say(*chosen.describe(found))
    for folder in install.runners(found):
        say(f"  作业正在运行：{folder.name}", f"  a job runs: {folder.name}")
    for folder in install.waiting(found):
        say(f"  作业等待重启：{folder.name}", f"  a job waits for a restart: {folder.name}")
    for place in install.engines(found):
        say(f"  推理引擎正在运行：{place.name}", f"  an engine runs: {place.name}")
    return 0 if running else 3


def leave(found: install.Install, *, now: bool) -> int:
    """Tell the console, stop everything, remove everything. With jobs under way only when `now` says so."""
    running = [*install.runners(found), *install.waiting(found)]
    if running and not now:
        say(
            f"有 {len(running)} 个作业正在运行，未作改动。请等其结束或取消，或用 leave --now 连同作业一起停止。",
            f"{len(running)} jobs run here, so nothing was changed. Wait for them or cancel them, or end them too: "
            "leave --now",
        )
        return 1
    engines = install.engines(found)
    if engines and not now:
        names = ", ".join(place.name for place in engines)
        say(
            f"有 {len(engines)} 个推理引擎正在运行（{names}），未作改动。请先在控制台停止其部署，"
            "或用 leave --now 一起停止。",
            f"{len(engines)} engines run here ({names}), so nothing was changed. Stop their deployments in the "
            "console, or end them too: leave --now",
        )
        return 1
    told = say_goodbye(found)
    install.stop(found)
    install.end_runners(found)
    install.remove(found)
    if told:
        say("已离开控制台，文件与进程均已移除。", "This server has left the console; its files and processes are gone.")
    else:
        say(
            "文件与进程均已移除，但没能通知控制台。请在控制台的“加入服务器”页让它离开，以作废其凭据。",
            "The files and processes are gone, but the console could not be told. Let the server leave on its page "
            "“Join a server”, so that its credentials end.",
        )
    return 0


def say_goodbye(found: install.Install) -> bool:
    """Whether the console took note and ended the credentials."""
    try:
        config = load(found.config)
        body = json.dumps({"op": "leave", "server": config.server_id, "t": round(time.time())})
        sent = json.dumps({"body": body, "mac": signing.sign(config.key, body)}).encode()
        web, pin = (config.console, config.pin) if config.console else (found.console, found.pin)
        return fetch.ask("POST", f"{web}/join/left", pin, sent, timeout_s=10).status == 200
    except (OSError, ConfigError, http.client.HTTPException):
        return False


def _is_aside(after_s: float) -> bool:
    """False at once here; True in a moment in a session of its own, which nothing of the agent or of sudo holds.

    While sudo waits for us, the account that called it counts as in use and cannot be deleted.
    """
    if os.fork():
        return False
    os.setsid()
    time.sleep(after_s)
    return True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ascend-console")
    parser.add_argument("--prefix", type=Path, required=True, help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("status", "start", "stop", "restart"):
        verbs.add_parser(verb)
    leaving = verbs.add_parser("leave")
    leaving.add_argument("--now", action="store_true", help="end jobs that run, too")
    leaving.add_argument("--after", type=float, default=0.0, help=argparse.SUPPRESS)  # seconds, in the background
    options = parser.parse_args(argv)
    try:
        found = install.read(options.prefix)
    except (OSError, ValueError, TypeError):
        say(f"{options.prefix} 中没有安装代理。", f"No agent is installed in {options.prefix}.")
        return 2
    if options.verb == "status":
        return status(found)
    if not os.access(found.prefix / "etc", os.W_OK):
        say("没有权限。请用 sudo 运行。", "You may not do this. Run it with sudo.")
        return 2
    try:
        if options.verb == "leave":
            return leave(found, now=options.now) if not options.after or _is_aside(options.after) else 0
        install.stop(found) if options.verb == "stop" else install.start(found)
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        say(f"没有成功：{error}", f"This did not work: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
