"""Installs the agent on this server and waits until the console sees it.

The console's script (deployments/join/join.sh) runs this from the code that it has fetched and checked, with
JOIN_* in the environment. Run again it repairs: what is there and good is kept, the credentials too.
"""

import dataclasses
import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Any

from deployments.agent import bundles, config, install, root_install
from deployments.agent.config import spoken
from deployments.agent.join_checks import Console, Stopped, check_clock, check_redis, say
from deployments.steps import Text

ACCOUNT = "ascend-console"
GROUP = "HwHiAiUser"  # who is in it may use the NPUs; the driver's installer makes it
ONLINE_S = 60.0


# ---------- what is made ----------


def account(wish: str) -> tuple[str | None, bool]:
    """(the agent's account, whether it was made now); None without root, where the agent is ours."""
    if os.geteuid() != 0:
        return None, False
    name, made = wish or ACCOUNT, False
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        _run("useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", _nologin(), name)
        entry, made = pwd.getpwnam(name), True
    if entry.pw_uid == 0:
        raise Stopped(
            "permission", "代理不能以 root 运行。请把 AGENT_USER 换成别的账号。",
            "The agent never runs as root. Name another account with AGENT_USER.",
        )  # fmt: skip
    if _has_group(GROUP):
        _run("usermod", "--append", "--groups", GROUP, name)
    else:
        say(
            f"注意：没有 {GROUP} 组，即未安装 NPU 驱动。装好驱动后再运行一次本命令，代理即可使用 NPU。",
            f"Note: there is no group {GROUP}, so no NPU driver. Run this again once it is installed, to use the NPUs.",
        )
    return name, made


def _has_group(name: str) -> bool:
    import grp

    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _nologin() -> str:
    return next((shell for shell in ("/usr/sbin/nologin", "/sbin/nologin") if Path(shell).exists()), "/bin/false")


def _run(*command: str) -> None:
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if found.returncode:
        words = " ".join(found.stderr.split())[:300]
        raise Stopped(
            "permission",
            f"{command[0]} 失败：{words} 请先手工建好账号，再用 AGENT_USER= 指明。",
            f"{command[0]} failed: {words} Make the account yourself, then name it with AGENT_USER=.",
        )


def make_environment(place: install.Install, code: Path) -> None:
    """A virtual environment without pip; the agent's packages are on its path, and on nobody else's."""
    folder = place.prefix / "venv"
    try:
        venv.EnvBuilder(with_pip=False, symlinks=True, clear=True).create(folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise Stopped(
            "python", f"{sys.executable} 建不了 {folder}（{error}）。请用 PYTHON= 指明另一个 Python。",
            f"{sys.executable} could not make {folder} ({error}). Name another Python with PYTHON=.",
        ) from error  # fmt: skip
    paths = sysconfig.get_paths("venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix", vars={
        "base": str(folder), "platbase": str(folder),
    })  # fmt: skip
    (Path(paths["purelib"]) / "ascend-console.pth").write_text(f"{place.prefix / 'current' / 'site'}\n")
    link = place.prefix / ".current"
    link.unlink(missing_ok=True)
    link.symlink_to(code.relative_to(place.prefix))
    link.replace(place.prefix / "current")


def own_files(place: install.Install) -> None:
    """Folders and small programs; state and log belong to the agent, the rest to who installs."""
    for name in ("bin", "etc", "run", "state", "log"):
        (place.prefix / name).mkdir(exist_ok=True)
    (place.prefix / "bin" / "keep").write_text(install.KEEP)
    command = place.prefix / "bin" / "ascend-console"
    command.write_text(
        "#!/bin/sh\n# ascend-console status | start | stop | restart | leave\ncd /\n"
        f'PYTHONPATH="{place.prefix}/current/lib" PYTHONDONTWRITEBYTECODE=1 exec "{place.python}" '
        f'-m deployments.agent.control --prefix "{place.prefix}" "$@"\n'
    )
    command.chmod(0o755)
    if place.user:
        for name in ("state", "log"):
            shutil.chown(place.prefix / name, place.user)
            (place.prefix / name).chmod(0o750)


def with_root_helper(place: install.Install) -> install.Install:
    """The root helper installed, or taken away where it is not wished or cannot be safe here."""
    if not place.user or os.environ.get("NO_ROOT_HELPER", "") not in ("", "0"):
        root_install.take_away(place.prefix)
        return place
    try:
        root_install.put(place.prefix, place.user)
    except (root_install.NotInstalled, OSError, subprocess.SubprocessError) as error:
        zh, en = error.text if isinstance(error, root_install.NotInstalled) else (str(error), str(error))
        say(
            f"注意：未安装 root 助手（{zh}）。需要 root 的作业种类在这台服务器上不可用，其余照常。",
            f"Note: no root helper was installed ({en}). Job kinds that need root are missing here; all others work.",
        )
        return place
    say(
        f"已安装 root 助手；允许它的唯一 sudoers 文件：{root_install.SUDOERS}",
        f"The root helper is installed; the one sudoers file that allows it: {root_install.SUDOERS}",
    )
    return dataclasses.replace(place, root_helper=True)


def get_config(console: Console, place: install.Install) -> config.Config:
    """The config that is there, where it is this server's and still good; else one from the console, which is used up.

    Raises Stopped.
    """
    kept, stopped = _kept(place), None
    try:
        if kept and check_redis(kept):
            say("沿用已有的凭据。", "The credentials that are there are kept.")
            return kept
    except Stopped as error:
        if error.code == "tls_clock":
            raise
        stopped = error  # a new command may bring another address, or another authority
    status, body, _date = console.ask("POST", "config")
    if status != 200:
        if stopped:
            raise stopped
        words = body.decode(errors="replace")[:600]
        raise Stopped("used", words, words)
    data: dict[str, Any] = {**json.loads(body), "state_dir": str(place.state)}
    write_config(place, data)
    made = config.parse(place.config, data)
    if not check_redis(made):
        raise Stopped(
            "redis", "控制台的 Redis 拒绝了新凭据。请在控制台重新生成命令再试。",
            "The console's Redis refuses the new credentials. Make a new command and try again.",
        )  # fmt: skip
    return made


def _kept(place: install.Install) -> config.Config | None:
    try:
        found = config.load(place.config)
    except config.ConfigError:
        return None
    return found if found.server_id == place.server_id and found.state_dir == place.state else None


def write_config(place: install.Install, data: dict[str, Any]) -> None:
    """Readable by the agent alone."""
    new = place.config.with_name(".config.json")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    if place.user:
        shutil.chown(new, place.user)
    new.replace(place.config)


def check_account(place: install.Install) -> None:
    """Raises Stopped where the agent's account cannot run this Python or reach the folder."""
    if not place.user:
        return
    entry = pwd.getpwnam(place.user)
    test = [str(place.python), "-c", "import redis, rq, deployments.agent"]
    words = _fails_as(entry, test, install.environment(place))
    if words:
        raise Stopped(
            "permission",
            f"账号 {place.user} 无法运行 {place.python}：{words} 请用 PYTHON= 指明一个所有人可用的 Python。",
            f"The account {place.user} cannot run {place.python}: {words} Name one that everybody may use: PYTHON=",
        )


def _fails_as(entry: pwd.struct_passwd, command: list[str], env: dict[str, str]) -> str:
    """Why the command does not work as that account, '' where it does."""
    try:
        found = subprocess.run(
            command, user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], cwd="/", capture_output=True, text=True,
            env=env, timeout=60,
        )  # fmt: skip
    except OSError as error:
        return str(error)
    return " ".join(found.stderr.split())[-300:] or f"exit code {found.returncode}" if found.returncode else ""


# ---------- the whole ----------


def wait_online(console: Console, place: install.Install) -> None:
    """Raises Stopped where the console does not hear the agent within a minute."""
    began = time.monotonic()
    while time.monotonic() - began < ONLINE_S:
        status, body, _date = console.ask("GET", "state")
        if status == 200 and _heard_within(body.decode(), time.monotonic() - began):
            return
        time.sleep(1)
    log = place.prefix / "log"
    raise Stopped(
        "silent",
        f"代理已启动，但控制台在 {ONLINE_S:.0f} 秒内没有收到它的消息。请看 {log} 中的 link.log 与 keep.log。",
        f"The agent was started, but the console did not hear it within {ONLINE_S:.0f} s. See link.log and keep.log "
        f"in {log}.",
    )


def _heard_within(answer: str, span_s: float) -> bool:
    """True where the console heard the server less than `span_s` ago: what it heard before was an agent of before."""
    reached, age, *_rest = [*answer.split("\n"), ""]
    return reached in ("online", "reading") and bool(age) and float(age) < span_s


def join(console: Console, prefix: Path, code: Path, server_id: int, wish: str) -> install.Install:
    """Everything, in order. Raises Stopped, OSError."""
    check_clock(console)
    try:
        before = install.read(prefix)
    except (OSError, ValueError, TypeError):
        before = None
    user, made_user = account(wish or (before.user if before and before.user else ""))
    made_user = made_user or bool(before and before.made_user and before.user == user)
    place = install.Install(
        prefix, console.url, console.pin, server_id, user, made_user, install.has_systemd(), secrets.token_hex(8)
    )
    own_files(place)
    place = with_root_helper(place)
    replaced = bundles.base_name(place)
    place.save()
    make_environment(place, code)
    if place.root_helper:
        root_install.put_leave(prefix)
    check_account(place)
    get_config(console, place)
    # An agent of before began with what stood in its config then.
    install.start(place)
    say("代理已启动，等待控制台确认 …", "The agent has started; waiting for the console to see it …")
    wait_online(console, place)
    (prefix / ".joining").unlink(missing_ok=True)
    bundles.prune(prefix / "code", place.state / "attempts", {code.name, replaced})
    return place


def main() -> int:
    env = os.environ
    console = Console(env["JOIN_CONSOLE"], env["JOIN_TOKEN"], env["JOIN_PIN"])
    prefix, code = Path(env["JOIN_PREFIX"]), Path(env["JOIN_CODE"])
    try:
        place = join(console, prefix, code, int(env["JOIN_SERVER_ID"]), env.get("AGENT_USER", ""))
    except Stopped as error:
        print(spoken(error.text), file=sys.stderr)
        console.report(error.code, error.text.en)
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        full = isinstance(error, OSError) and error.errno in (28, 122)
        words = Text(
            f"没有成功：{error}。请改正后再运行一次。", f"This did not work: {error}. Mend it, then run this again."
        )
        print(spoken(words), file=sys.stderr)
        console.report("disk" if full else "permission", str(error))
        return 1
    say("本机已加入控制台，并已在线。", "This server has joined the console and is online.")
    say(f"离开：{prefix}/bin/ascend-console leave", f"To leave: {prefix}/bin/ascend-console leave")
    if not place.systemd:
        say(
            f"这里没有 systemd：重启后请运行 {prefix}/bin/ascend-console start",
            f"There is no systemd here: after a reboot run {prefix}/bin/ascend-console start",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
