"""Group `surroundings`: what the agent's programs inherit, and what the system forbids them."""

import re
import sys
from pathlib import Path

from deployments.kinds.check_probes.finding import Finding, Probe, failed, ok, unknown, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.set_env import inherited, profiles
from deployments.kinds.check_probes.textfiles import first_line, number, pairs
from deployments.steps import Text

PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL = ("127.0.0.1", "localhost")
FIREWALLS = ("firewalld", "ufw", "nftables", "iptables")
CODE = str(Path(__file__).parents[3])


def proxy(host: Host) -> Finding:
    """Engines are asked on loopback: a proxy must not get these requests."""
    env = {name.lower(): value for name, value in sorted(host.env.items(), reverse=True) if value}
    found = [f"{name}={without_password(env[name])}" for name in PROXIES if env.get(name)]
    if not found:
        return ok("—", f"no_proxy: {', '.join(LOCAL)}")
    spared = {part.strip().lower() for part in env.get("no_proxy", "").split(",")}
    spared |= {LOCAL[0]} if any(part.startswith("127.") for part in spared) else set()
    lacking = [name for name in LOCAL if name not in spared and "*" not in spared]
    words = ", ".join([*found, f"no_proxy={env.get('no_proxy', '')}"])
    if not lacking:
        return ok(words, f"no_proxy: {', '.join(LOCAL)}")
    remedy = Text(
        f"代理环境里有 HTTP 代理而 no_proxy 不含 {'、'.join(lacking)}：对本机服务的请求会被送去代理。"
        f"在启动代理的环境里设 no_proxy={','.join(LOCAL)},本机地址，再重启代理。",
        f"The agent's environment has a proxy, and no_proxy lacks {', '.join(lacking)}: requests to engines on this "
        f"server go to the proxy. Set no_proxy={','.join(LOCAL)} and this host's addresses, then restart the agent.",
    )
    return warning(words, f"no_proxy: {', '.join(LOCAL)}", remedy)


def without_password(address: str) -> str:
    return re.sub(r"^(\w+://)?.*@", r"\1…@", address)


def selinux(host: Host) -> Finding:
    enforcing = number(host, "/sys/fs/selinux/enforce")
    later = pairs(host.peek("/etc/selinux/config"), "=").get("SELINUX", "")
    if enforcing == 1:
        remedy = Text(
            "SELinux 处于 enforcing，容器挂载与设备访问会被拒绝：容器挂载加 :z，或以 root 运行 setenforce 0，"
            "并在 /etc/selinux/config 里设 permissive。",
            "SELinux enforces, and refuses mounts and devices of containers: add :z to the mounts, or as root run "
            "setenforce 0 and set permissive in /etc/selinux/config.",
        )
        return warning("enforcing", "permissive, disabled", remedy)
    if later == "enforcing":
        remedy = Text(
            "现在未启用，但下次启动会变为 enforcing：改 /etc/selinux/config 为 permissive。",
            "It does not enforce now but will after the next restart: set permissive in /etc/selinux/config.",
        )
        return warning("permissive → enforcing", "permissive, disabled", remedy)
    return ok("disabled" if enforcing is None else "permissive", "permissive, disabled")


def firewall(host: Host) -> Finding:
    """Which service filters packets; the rules themselves take root."""
    wanted = "—"
    answer = host.run("systemctl", "is-active", *FIREWALLS)
    words = answer.text.split() if answer else []
    if answer is None or answer.code == 127 or len(words) != len(FIREWALLS):
        remedy = Text(
            "systemctl 没有回答。以 root 运行 nft list ruleset 或 iptables -S 查看规则。",
            "systemctl does not answer. As root run nft list ruleset or iptables -S to see the rules.",
        )
        return unknown(remedy, wanted=wanted)
    active = [name for name, word in zip(FIREWALLS, words, strict=True) if word == "active"]
    ufw_off = pairs(host.peek("/etc/ufw/ufw.conf"), "=").get("ENABLED", "yes") == "no"
    active = [name for name in active if not (name == "ufw" and ufw_off)]
    if not active:
        return ok("—", wanted)
    remedy = Text(
        "防火墙开着：多机部署与控制台需要的端口会不通。放行 HCCL 60000–60015、服务端口与节点之间的通信，或关闭它；"
        "查看规则要 root（nft list ruleset）。",
        "A firewall runs: several servers together, and ports of engines, may be out of reach. Let 60000–60015 (HCCL), "
        "the engines' ports and the nodes through, or stop it; seeing its rules takes root (nft list ruleset).",
    )
    return warning(", ".join(active), wanted, remedy)


def folders(host: Host) -> list[str]:
    """The folders from which the agent's programs and the stacks run."""
    temp = host.env.get("TMPDIR") or "/tmp"
    found = [temp, host.stacks]
    if host.root == Path("/"):
        found += [str(host.state) if host.state else "", CODE, sys.prefix]
    return list(dict.fromkeys(name for name in found if name.startswith("/")))


def noexec(host: Host) -> Finding:
    rows = [row.split() for row in (host.read("/proc/mounts") or "").splitlines()]
    mounts = {cells[1].replace("\\040", " "): cells[3].split(",") for cells in rows if len(cells) >= 4}
    if not mounts:
        return unknown(Text("读不到 /proc/mounts。", "/proc/mounts cannot be read."), wanted="exec")
    asked = folders(host)
    bad = [name for name in asked if "noexec" in mounts.get(mount_of(name, mounts), [])]
    if not bad:
        return ok(", ".join(asked), "exec")
    remedy = Text(
        f"这些目录挂载为 noexec，编译出的算子与安装包不能运行：以 root 运行 mount -o remount,exec "
        f"{mount_of(bad[0], mounts)}，并改 /etc/fstab；/tmp 也可以换成 TMPDIR。",
        f"Nothing may be run from these: compiled operators and installers fail. As root run mount -o remount,exec "
        f"{mount_of(bad[0], mounts)} and mend /etc/fstab; for /tmp another TMPDIR does as well.",
    )
    return failed(", ".join(bad), "exec", remedy)


def mount_of(folder: str, mounts: dict[str, list[str]]) -> str:
    above = [name for name in mounts if folder == name or folder.startswith(f"{name.rstrip('/')}/")]
    return max(above, key=len, default="/")


def umask(host: Host) -> Finding:
    rows = pairs(host.read("/proc/self/status") or "", ":")
    found, wanted = rows.get("Umask", ""), "0022, 0027"
    if not re.fullmatch(r"[0-7]{1,4}", found):
        return unknown(Text("内核没有给出 umask。", "The kernel does not tell the umask."), wanted=wanted)
    mask = int(found, 8)
    if mask & 0o700:
        remedy = Text(
            "umask 连属主的权限也去掉了：在启动代理的环境里设 umask 0022。",
            "The umask takes rights even from the owner: set umask 0022 where the agent is started.",
        )
        return failed(found, wanted, remedy)
    if mask & 0o050:
        remedy = Text(
            "umask 太严，新装的环境与模型文件别的账号读不了：在启动代理的环境里设 umask 0022。",
            "New environments and model files cannot be read by other accounts: set umask 0022 where the agent is "
            "started.",
        )
        return warning(found, wanted, remedy)
    if mask & 0o022 != 0o022:
        remedy = Text(
            "umask 太松，新文件别的账号能改，安装包会拒绝：在启动代理的环境里设 umask 0022。",
            "Others may write into new files, which installers refuse: set umask 0022 where the agent is started.",
        )
        return warning(found, wanted, remedy)
    return ok(found, wanted)


def host_name(host: Host) -> Finding:
    """Ranks find each other by this name."""
    name = first_line(host, "/proc/sys/kernel/hostname") or first_line(host, "/etc/hostname")
    wanted = "/etc/hosts"
    if not name:
        return unknown(Text("读不到主机名。", "The host's name cannot be read."), wanted=wanted)
    rows = [row.split("#")[0].split() for row in host.peek("/etc/hosts").splitlines()]
    if address := next((row[0] for row in rows if name in row[1:]), None):
        if address.startswith("127."):
            remedy = Text(
                f"主机名 {name} 指向回环地址 {address}，别的节点会连到它们自己：在 /etc/hosts 里改为本机地址。",
                f"The name {name} stands for {address}, so other nodes would connect to themselves: give it this "
                "host's address in /etc/hosts.",
            )
            return warning(f"{address} {name}", wanted, remedy)
        return ok(f"{address} {name}", wanted)
    answer = host.run("getent", "hosts", name, timeout_s=3.0)
    if answer and answer.code == 0 and answer.text.split():
        return ok(f"{answer.text.split()[0]} {name}", wanted)
    remedy = Text(
        f"主机名 {name} 解析不出地址，多机任务会失败：在 /etc/hosts 里加一行“本机地址 {name}”。",
        f"The name {name} has no address, so work over several servers fails: add “address {name}” to /etc/hosts.",
    )
    return warning(name, wanted, remedy)


def rank_table(host: Host) -> list[Finding]:
    """Left out where no start-up file of a shell sets one."""
    found = []
    for file, name in profiles(host, re.compile(r"^\s*(?:export\s+)?RANK_TABLE_FILE=[\"']?([^\"'\s;]+)")):
        if host.exists(name):
            found.append(ok(name, file, about=file))
            continue
        remedy = Text(
            f"{file} 设了 RANK_TABLE_FILE，而这个文件不存在，集合通信会失败：去掉这一行。",
            f"{file} sets RANK_TABLE_FILE to a file that is not there, so collectives fail: take the line out.",
        )
        found.append(failed(name, "—", remedy, about=file))
    return found


PROBES = [
    Probe("set_env", Text("set_env.sh", "set_env.sh"), inherited),
    Probe("proxy", Text("HTTP 代理", "HTTP proxy"), proxy),
    Probe("selinux", Text("SELinux", "SELinux"), selinux),
    Probe("firewall", Text("防火墙", "Firewall"), firewall),
    Probe("noexec", Text("可执行目录", "Folders to run from"), noexec),
    Probe("umask", Text("umask", "umask"), umask),
    Probe("host_name", Text("主机名", "Host name"), host_name),
    Probe("rank_table", Text("RANK_TABLE_FILE", "RANK_TABLE_FILE"), rank_table),
]
