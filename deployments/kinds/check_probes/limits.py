"""Group `limits`: Python, limits of the user, locale, shared memory, clock, ports."""

import re

from deployments.kinds.check_probes.finding import Finding, Probe, failed, ok, unknown, warning
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.ports import ports
from deployments.kinds.check_probes.system import free_gib
from deployments.steps import Text

PYTHONS = ("python3", "python3.12", "python3.11", "python3.10")
LEAST_FILES = 65535
LEAST_PROCESSES = 16384  # threads count: sixteen engines, each with a hundred and more of them for its cores


def python(host: Host) -> Finding:
    seen: list[str] = []
    for name in PYTHONS:
        answer = host.run(name, "-V")
        hit = re.match(r"Python (3\.(\d+)\S*)", answer.text) if answer and answer.code == 0 else None
        if hit is None:
            continue
        seen.append(f"{name}: {hit[1]}")
        if 10 <= int(hit[2]) <= 12:
            return ok(seen[-1], "3.10–3.12")
    remedy = Text(
        "vLLM-Ascend 需要 Python 3.10–3.12：用 conda 建一个环境，或用容器方式部署。",
        "vLLM-Ascend needs Python 3.10 to 3.12: make an environment with conda, or use the container.",
    )
    return warning(", ".join(seen) or "—", "3.10–3.12", remedy)


def limit(host: Host, name: str) -> tuple[str, str]:
    """Soft and hard limit of this process, as the kernel prints them. Raises Trouble."""
    for line in (host.read("/proc/self/limits") or "").splitlines():
        if line.startswith(name):
            cells = line[len(name) :].split()
            if len(cells) >= 2:
                return cells[0], cells[1]
    raise Trouble(Text(f"/proc/self/limits 里没有“{name}”", f"/proc/self/limits has no line “{name}”"))


def at_least(host: Host, name: str, least: int, remedy: Text) -> Finding:
    """Whether the limit of that name is as wide."""
    soft, hard = limit(host, name)
    found, wanted = f"{soft} / {hard}", f"≥ {least}"
    if soft == "unlimited" or (soft.isdecimal() and int(soft) >= least):
        return ok(found, wanted)
    return warning(found, wanted, remedy)


def open_files(host: Host) -> Finding:
    remedy = Text(
        "打开文件数上限太低，多卡服务会报 too many open files："
        f"在 /etc/security/limits.conf 里设 nofile {LEAST_FILES}，重新登录。",
        "Too few open files are allowed; serving on many NPUs ends in “too many open files”: "
        f"set nofile {LEAST_FILES} in /etc/security/limits.conf and sign in again.",
    )
    return at_least(host, "Max open files", LEAST_FILES, remedy)


def processes(host: Host) -> Finding:
    remedy = Text(
        "进程与线程数上限太低，多卡服务会报 can't start new thread："
        f"在 /etc/security/limits.conf 里设 nproc {LEAST_PROCESSES}（服务设 LimitNPROC），重新登录。",
        "Too few processes and threads are allowed; serving on many NPUs ends in “can't start new thread”: "
        f"set nproc {LEAST_PROCESSES} in /etc/security/limits.conf (a service: LimitNPROC) and sign in again.",
    )
    return at_least(host, "Max processes", LEAST_PROCESSES, remedy)


def locked_memory(host: Host) -> Finding:
    soft, hard = limit(host, "Max locked memory")
    if soft == "unlimited":
        return ok("unlimited", "unlimited")
    remedy = Text(
        "锁定内存有上限，RDMA 注册内存会失败：在 /etc/security/limits.conf 里设 memlock unlimited，重新登录。",
        "Locked memory is limited, so memory for RDMA cannot be registered: "
        "set memlock unlimited in /etc/security/limits.conf and sign in again.",
    )
    return warning(f"{soft} / {hard}", "unlimited", remedy)


def locale(host: Host) -> Finding:
    found = next((host.env[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if host.env.get(name)), "")
    if not found:
        text = host.read("/etc/locale.conf") or host.read("/etc/default/locale") or ""
        hit = re.search(r"^\s*LANG=[\"']?([^\"'\s]+)", text, re.MULTILINE)
        found = hit[1] if hit else ""
    if re.search(r"utf-?8", found, re.IGNORECASE):
        return ok(found, "UTF-8")
    remedy = Text(
        "不是 UTF-8，中文路径与日志会出错：localectl set-locale LANG=C.UTF-8",
        "It is not UTF-8, so Chinese paths and logs break: localectl set-locale LANG=C.UTF-8",
    )
    return warning(found or "—", "UTF-8", remedy)


def shared_memory(host: Host) -> Finding:
    if not host.exists("/dev/shm"):
        return failed("—", "≥ 1 GiB", Text("没有 /dev/shm：挂载 tmpfs。", "There is no /dev/shm: mount a tmpfs."))
    free = free_gib(host, "/dev/shm")
    if free >= 1:
        return ok(f"{free:.0f} GiB", "≥ 1 GiB")
    remedy = Text(
        "共享内存太小，多卡进程之间无法通信：mount -o remount,size=16G /dev/shm（容器用 --shm-size=16g）。",
        "Too little shared memory for workers to talk: mount -o remount,size=16G /dev/shm "
        "(a container: --shm-size=16g).",
    )
    return failed(f"{free:.2f} GiB", "≥ 1 GiB", remedy)


def clock(host: Host) -> Finding:
    answer = host.run("chronyc", "-n", "tracking")
    if answer and answer.code == 0:
        hit = re.search(r"System time\s*:\s*([\d.]+) seconds (slow|fast)", answer.text)
        if hit and "Not synchronised" not in answer.text:
            return _offset(float(hit[1]), hit[2])
    answer = host.run("timedatectl", "show", "-p", "NTPSynchronized", "--value")
    if answer and answer.code == 0 and answer.text.strip() == "yes":
        return ok("NTP", "≤ 0.5 s")
    if answer and answer.code == 0 and answer.text.strip() == "no":
        remedy = Text(
            "时钟没有与任何时间源同步：配置 chrony 并启动（systemctl enable --now chronyd）。",
            "The clock follows no source: configure chrony and start it (systemctl enable --now chronyd).",
        )
        return warning("—", "≤ 0.5 s", remedy)
    return unknown(
        Text(
            "没有 chronyc 或 timedatectl 可以询问：安装 chrony。",
            "There is no chronyc or timedatectl to ask: install chrony.",
        ),
        wanted="≤ 0.5 s",
    )


def _offset(seconds: float, direction: str) -> Finding:
    found = f"{'+' if direction == 'fast' else '−'}{seconds:.3f} s"
    if seconds <= 0.5:
        return ok(found, "≤ 0.5 s")
    remedy = Text(
        "时钟偏差大，日志与证书的时间会乱：chronyc makestep",
        "The clock is off, which confuses logs and certificates: chronyc makestep",
    )
    return (failed if seconds > 60 else warning)(found, "≤ 0.5 s", remedy)


PROBES = [
    Probe("python", Text("Python", "Python"), python),
    Probe("open_files", Text("打开文件数", "Open files"), open_files),
    Probe("locked_memory", Text("锁定内存", "Locked memory"), locked_memory),
    Probe("processes_limit", Text("进程与线程数", "Processes and threads"), processes),
    Probe("locale", Text("语言环境", "Locale"), locale),
    Probe("shared_memory", Text("共享内存 /dev/shm", "Shared memory /dev/shm"), shared_memory),
    Probe("clock", Text("时钟偏差", "Clock offset"), clock),
    Probe("ports", Text("占用的端口", "Ports in use"), ports),
]
