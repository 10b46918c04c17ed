"""`python -m deployments.stacks.in_group GROUP`: may this account use what belongs to the group? As root it may."""

import grp
import os
import pwd
import sys

from deployments.stacks.said import FINE, ended
from deployments.steps import Text


def problem(group: str) -> Text:
    """Why not; FINE where it may."""
    if os.geteuid() == 0:
        return FINE
    name = pwd.getpwuid(os.geteuid()).pw_name
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return no_group(group)
    if found.gr_gid in (os.getegid(), *os.getgroups()):
        return FINE
    return Text(
        f"代理账号 {name} 不在用户组 {group} 里。请以 root 运行 usermod -aG {group} {name}，重启代理，再重试。",
        f"The agent's account {name} is not in the group {group}. As root run: usermod -aG {group} {name}, restart "
        "the agent, then try again.",
    )


def no_group(group: str) -> Text:
    return Text(
        f"这台服务器没有用户组 {group}：先安装 NPU 驱动。",
        f"There is no group {group} on this server: install the NPU driver first.",
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("It takes GROUP.", file=sys.stderr)
        return 2
    return ended(problem(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
