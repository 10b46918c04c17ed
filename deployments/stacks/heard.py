"""What packages of the vendor and the root helper print when they fail, and what it means (install.md 4-5)."""

from deployments.stacks.actions import PACKAGES
from deployments.steps import Text

# The root helper's own words: nothing was begun.
REFUSED: tuple[tuple[str, Text], ...] = (
    (
        r"root-helper: there is no such action",
        Text(
            "这台服务器的 root 助手是旧版本，不认识这个动作，什么也没有改动。请以 root 重新运行加入命令，再重试。",
            "The root helper of this server is of an older version and does not know this action; nothing was changed. "
            "Run the command for joining again as root, then try again.",
        ),
    ),
    (
        r"root-helper: there is no package",
        Text(
            f"安装包不在这台服务器上，什么也没有改动。请以 root 把它放进 {PACKAGES}，再重试。",
            f"The package is not on this server; nothing was changed. Put it into {PACKAGES} as root, then try again.",
        ),
    ),
    (
        r"root-helper: .* is another file than planned",
        Text(
            f"{PACKAGES} 里的安装包与计划中的 SHA-256 不同，因此没有运行。请换成正确的文件，再重试。",
            f"The package in {PACKAGES} has another SHA-256 than the plan, so it was not run. Put the right file "
            "there, then try again.",
        ),
    ),
    (
        r"root-helper: (others than root can change|.* is a link)",
        Text(
            f"{PACKAGES} 或其中的文件不是只有 root 能改动，因此没有以 root 运行。"
            "请由 root 重新放置：目录与文件归 root 所有，别人不可写。",
            f"Others than root can change {PACKAGES}, a file in it, or what was to be run, so root did not run it. Let "
            "root own folder and file, writable by nobody else.",
        ),
    ),
    (
        r"root-helper: there is no room",
        Text(
            "没有空间存放安装包的副本，什么也没有改动。请清出 /var/lib 的空间，再重试。",
            "There is no room for a copy of the package; nothing was changed. Make room in /var/lib, then try again.",
        ),
    ),
    (
        r"root-helper: NPUs are held by",
        Text(
            "有进程占用 NPU，因此没有开始；日志里有它们的 PID。请等其所有者结束，再重试。",
            "NPUs are held, so it was not begun; the log names the processes. Let their owners end them, then try "
            "again.",
        ),
    ),
    (
        r"root-helper: another package is being installed",
        Text(
            "另一个安装包正在安装，什么也没有改动。请等它结束，再重试。",
            "Another package is being installed; nothing was changed. Wait until it has ended, then try again.",
        ),
    ),
)

HOST: tuple[tuple[str, Text], ...] = (
    *REFUSED,
    (
        r"rebuild ko has something wrong",
        Text(
            "安装程序找不到内核源码，要求输入其路径，而这里没有人回答。请安装与内核一致的头文件，再重试。",
            "The installer finds no kernel source and asks for its path, and nobody is there to answer. Install the "
            "headers of the running kernel, then try again.",
        ),
    ),
)
