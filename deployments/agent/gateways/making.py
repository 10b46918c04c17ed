"""Steps of the jobs `gateway` and `gateway_stop`.

python -m deployments.agent.gateways.making look|router|put|ready|stop …
"""

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from deployments.agent import indexed, pages
from deployments.agent.config import Config
from deployments.agent.gateways import folder as folders
from deployments.agent.gateways import front, obey, watch
from deployments.agent.pages import Stopped, say
from deployments.serving import gateway_conf
from deployments.stacks import indexes

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
SATISFIED = 3
READY_S = 60.0
STOP_S = 60.0
QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--timeout", "30", "--retries", "2")


def wanted() -> str:
    """`vllm-router==…` as the list of this folder has it."""
    lines = REQUIREMENTS.read_text().splitlines()
    return next(line.strip() for line in lines if line.startswith("vllm-router=="))


def environment(config: Config) -> Path:
    """The router's own, one for each version, shared by the gateways of this server."""
    return folders.root(config) / f"router-{wanted().partition('==')[2]}"


def look(config: Config, options: argparse.Namespace) -> None:
    """Raises Stopped."""
    if not options.alone and front.find() is None:
        raise Stopped(
            "这台服务器没有带 njs 模块的 nginx。请安装（Debian/Ubuntu：apt install nginx-light libnginx-mod-http-js；"
            "openEuler/RHEL：nginx 与 nginx-module-njs），或选择“只用路由”，它只在本机回环地址应答，用引擎自己的密钥。",
            "This server has no nginx with the module njs. Install it (Debian, Ubuntu: apt install nginx-light "
            "libnginx-mod-http-js; openEuler, RHEL: nginx and nginx-module-njs), or choose the router alone, which "
            "answers on loopback with the engines' own key.",
        )
    folder = folders.of(config, options.gateway)
    if folders.is_kept(folder):
        return  # it has the ports itself
    for port in (options.port, options.router_port):
        if not _is_free(port):
            raise Stopped(
                f"端口 {port} 被另一个程序占用。请停止它，或给网关另选端口。",
                f"Port {port} is used by another program. Stop it, or choose another port for the gateway.",
            )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def router(config: Config, options: argparse.Namespace) -> int:
    """Make the environment beside, and give it its name when it is whole. Raises Stopped."""
    home = environment(config)
    if _is_whole(home):
        say(f"{wanted()} 已在 {home}。", f"{wanted()} is in {home}.")
        return SATISFIED
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=home.parent) as aside:
        env = _own_env()
        words = ["--no-index", "--find-links", options.wheelhouse] if options.wheelhouse else []
        words += ["--index-url", options.index] if options.index else []
        words += [word for one in options.extra_index for word in ("--extra-index-url", one)]
        if options.private:
            logins, ca = indexed.ask(config, os.environ["ASCEND_ATTEMPT"])
            env |= indexes.write(Path(aside), logins, ca)
            indexed.check(words, logins, env.get("PIP_CERT", ""))
        _run([sys.executable, "-m", "venv", str(home)], env)
        pip = [str(home / "bin/python"), "-m", "pip", "install", *QUIET, *words, "-r", str(REQUIREMENTS)]
        _run(pip, env, undo=home)
    if not _is_whole(home):
        shutil.rmtree(home, ignore_errors=True)
        raise Stopped(
            f"装好的 {wanted()} 不能启动。请看日志。", f"{wanted()} was installed and does not start. Look at the log."
        )
    (home / "whole").touch()
    return 0


def _own_env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ASCEND_CONFIG")}


def _run(argv: list[str], env: dict[str, str], undo: Path | None = None) -> None:
    print("$", *argv, flush=True)
    code = subprocess.run(argv, env=env, check=False).returncode
    if code:
        if undo:
            shutil.rmtree(undo, ignore_errors=True)
        raise Stopped(
            f"{wanted()} 没有装上（退出码 {code}）。请看日志；没有外网时，用 PACKAGE_INDEX 指定站点的索引，"
            "或给出 wheel 目录。",
            f"{wanted()} was not installed (exit code {code}). Look at the log; without the internet, name the site's "
            "index by PACKAGE_INDEX, or give a folder of wheels.",
        )


def _is_whole(home: Path) -> bool:
    """pip that was killed leaves halves: only what can be started counts."""
    python = home / "bin/python"
    if not python.exists():
        return False
    argv = [str(python), "-s", "-c", "from vllm_router.router import Router"]
    return subprocess.run(argv, env=_own_env(), capture_output=True, check=False).returncode == 0


def put(config: Config, options: argparse.Namespace) -> None:
    """Raises Stopped."""
    found = ("", "") if options.alone else front.find()
    if found is None:
        raise Stopped("nginx 不见了，请再试一次。", "nginx is gone. Try again.")
    spec = opened(config, options.sealed)
    folder = folders.of(config, options.gateway)
    before = folders.read_raw(folder)
    for name in ("keys", "engines"):  # an order may have brought newer ones
        if before.get("version", 0) >= spec.get("version", 0) and name in before:
            spec[name] = before[name]
    spec["version"] = max(spec.get("version", 0), before.get("version", 0))
    python = str(environment(config) / "bin/python")
    try:
        folders.write(folder, spec, {"python": python, "nginx": found[0], "module": found[1]})
    except gateway_conf.BadSpec as error:
        raise Stopped(f"控制台给出的设置不能用（{error}）。", f"The settings are not fit ({error}).") from error
    folders.set_wish(folder, "run")
    if not folders.is_kept(folder):
        watch.spawn(folder, config)


def opened(config: Config, sealed: str) -> dict[str, Any]:
    """What the console sealed for this server. Raises Stopped."""
    try:
        return obey.unpack(config, sealed)
    except (ValueError, zlib.error) as error:
        raise Stopped(
            "设置不是用这台服务器的密钥密封的。请重新排队。",
            "The settings were not sealed with this server's key. Queue the job anew.",
        ) from error


def ready(config: Config, options: argparse.Namespace) -> None:
    """Raises Stopped where it does not answer in time."""
    folder = folders.of(config, options.gateway)
    until, now = time.monotonic() + READY_S, folders.now(folder)
    while time.monotonic() < until:
        now = folders.now(folder)
        if now.get("version", 0) >= options.version and now.get("state") in ("ready", "degraded"):
            say(*(now.get("reason") or ("网关在应答。", "The gateway answers.")))
            return
        if now.get("state") == "failed" and folders.is_kept(folder):
            break
        time.sleep(0.2)
    zh, en = now.get("reason") or ("它什么也没说。", "It says nothing.")
    raise Stopped(f"网关没有就绪：{zh}", f"The gateway did not become ready: {en}")


def stop(config: Config, options: argparse.Namespace) -> None:
    """Raises Stopped where it does not end."""
    folder = folders.of(config, options.gateway)
    if not folder.exists():
        say("这里没有这个网关。", "This gateway is not here.")
        return
    folders.set_wish(folder, "stop")
    left = [name for name in ("nginx", "router") if folders.left(folder, name)]
    if left and not folders.is_kept(folder):
        watch.spawn(folder, config)  # nobody keeps it: a keeper that finds `stop` ends what is left
    until = time.monotonic() + STOP_S
    while time.monotonic() < until:
        left = [name for name in ("nginx", "router") if folders.left(folder, name)]
        if not left and not folders.is_kept(folder):
            say("已停止。", "It has stopped.")
            return
        time.sleep(0.1)
    raise Stopped(f"{', '.join(left)} 仍在运行。", f"{', '.join(left) or 'Its keeper'} runs still. Try again.")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.gateways.making")
    what = parser.add_subparsers(dest="what", required=True)
    looking, routing, putting, waiting, stopping = (
        what.add_parser(name) for name in ("look", "router", "put", "ready", "stop")
    )
    for one in (looking, putting, waiting, stopping):
        one.add_argument("gateway", type=int)
    for one in (looking, putting):
        one.add_argument("--alone", action="store_true")
    putting.add_argument("sealed")
    waiting.add_argument("version", type=int)
    looking.add_argument("--port", type=int, required=True)
    looking.add_argument("--router-port", type=int, required=True)
    routing.add_argument("--index", default="")
    routing.add_argument("--extra-index", action="append", default=[])
    routing.add_argument("--wheelhouse", default="")
    routing.add_argument("--private", action="store_true")
    options = parser.parse_args(argv)
    ended: list[int] = []
    acts = {"look": look, "router": router, "put": put, "ready": ready, "stop": stop}

    def work(config: Config) -> None:
        ended.append(acts[options.what](config, options) or 0)

    code = pages.step(work)
    return code or ended[0]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
