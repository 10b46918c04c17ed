"""Tools that say why they cannot answer, and what each of these sentences means.

npu-smi prints a failure to standard output and often ends with exit code 0,
so the text decides. The numbers are those of the DCMI library.
"""

import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from monitoring.parsers import MAX_CHARS, ParseError

COMMAND = "npu-smi or hccn_tool, where it fails"

MAX_KEPT = 16_384  # characters of the tool's own words that travel with a reading

Pair = tuple[str, str]  # the same sentence in Chinese and in English


class Meaning(NamedTuple):
    """What happened, then what to do."""

    what: Pair
    do: Pair


MEANINGS: dict[str, Meaning] = {
    "device_used": Meaning(
        ("NPU 已被另一个容器占用。", "The NPU is held by another container."),
        (
            "停止占用该 NPU 的容器，或改用其他 NPU。",
            "Stop the container that holds the NPU, or choose another NPU.",
        ),
    ),
    "driver_not_ready": Meaning(
        ("NPU 驱动没有响应。", "The NPU driver does not answer."),
        (
            "升级过驱动则重启服务器；在容器内则挂载 /dev/davinci* 与驱动目录；再查看 dmesg。",
            "Restart the server if its driver was upgraded; in a container, mount /dev/davinci* and the driver "
            "folder; then read dmesg.",
        ),
    ),
    "no_board_type": Meaning(
        ("驱动读不到板卡类型。", "The driver cannot read the board type."),
        (
            "容器内权限不足时常见，计算可能仍正常；请在主机上运行同一命令。",
            "Common in a container with few rights, where computing may still work; run the command on the host.",
        ),
    ),
    "missing_library": Meaning(
        ("npu-smi 找不到驱动的动态库。", "npu-smi cannot find a library of the driver."),
        (
            "将 /usr/local/Ascend/driver/lib64 及其子目录加入 LD_LIBRARY_PATH，或重新安装驱动。",
            "Add /usr/local/Ascend/driver/lib64 and its subfolders to LD_LIBRARY_PATH, or install the driver again.",
        ),
    ),
    "not_installed": Meaning(
        ("这台服务器上没有该命令。", "The command is not on this server."),
        ("安装 NPU 驱动，或将其目录加入 PATH。", "Install the NPU driver, or add its folder to PATH."),
    ),
    "bad_option": Meaning(
        ("此版本的工具不认识该选项。", "This version of the tool does not know the option."),
        (
            "用 npu-smi info -h 查看它支持的类型，或升级驱动。",
            "See npu-smi info -h for what it knows, or upgrade the driver.",
        ),
    ),
    "bad_device": Meaning(
        ("该设备号不存在。", "There is no device of that number."),
        ("用 npu-smi info -l 查看设备号后重试。", "Look up the number with npu-smi info -l, then try again."),
    ),
    "timeout": Meaning(
        ("工具没有在时限内结束。", "The tool did not end in time."),
        (
            "在服务器上手工运行该命令；若同样停住，则驱动已挂起，请查看 dmesg。",
            "Run the command on the server by hand; if it hangs there too, the driver hangs: read dmesg.",
        ),
    ),
    "command_failed": Meaning(
        ("工具执行失败，没有给出原因。", "The tool failed and gave no reason."),
        (
            "确认该芯片有此功能（无网口的芯片不能查询链路），再以 root 重试。",
            "Check that the chip has what was asked (a chip without ports has no links), then try again as root.",
        ),
    ),
    "not_supported": Meaning(
        ("该设备不支持此项查询。", "The device does not support this query."),
        ("无需处理。", "Nothing needs to be done."),
    ),
    "no_permission": Meaning(
        ("没有权限运行该命令。", "The command may not be run by this user."),
        ("以 root 或驱动运行用户组的成员重试。", "Try again as root or as a member of the driver's group."),
    ),
    "tool_error": Meaning(
        ("工具报告了错误码。", "The tool reports an error code."),
        ("在厂商手册中查找该错误码，并查看 dmesg。", "Look the code up in the vendor's manual, and read dmesg."),
    ),
    "empty": Meaning(
        ("工具没有任何输出。", "The tool printed nothing."),
        ("在服务器上手工运行该命令，查看结果。", "Run the command on the server by hand and see what it prints."),
    ),
    "too_long": Meaning(
        ("输出超过 2 MB，未读取。", "The output is longer than 2 MB and was not read."),
        (
            "确认运行的是正确的命令；所有已知工具的输出都短得多。",
            "Check that the right command was run; every known tool prints far less.",
        ),
    ),
    "not_understood": Meaning(
        ("解析器看不懂这段文本。", "The parser does not understand this text."),
        (
            "确认文本来自该命令；若是新版面，请保留原文并报告。",
            "Check that the text comes from that command; if the layout is new, keep the text and report it.",
        ),
    ),
}

# The order decides where a text holds several: the cause stands before its consequence.
SIGNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in (
        (r"because the device is used", "device_used"),
        (r"dcmi mod\w+ initialized? failed", "driver_not_ready"),
        (r"get board type failed", "no_board_type"),
        (r"error while loading shared libraries", "missing_library"),
        (r"(?:npu-smi|hccn_tool): (?:command )?not found|command not found", "not_installed"),
        (r"Error parameter of", "bad_option"),
        (r"Device ID is out of the valid range", "bad_device"),
        (r"does not support quer|not support(?:ed)? (?:on )?this", "not_supported"),
        (r"Permission denied|Operation not permitted", "no_permission"),
        (r"\b(?:Cmd|Command) execute failed", "command_failed"),
        (r"\bret is -\d", "tool_error"),
        (r"DrvMngGetConsoleLogLevel failed", "driver_not_ready"),
    )
)
CODE = re.compile(r"\bret is (-?\d{1,9})\b")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A tool that did not answer; ``code`` is its own number where it prints one."""

    code: int | None
    meaning: str  # a key of MEANINGS
    text: str  # the tool's own words, at most MAX_KEPT characters

    def as_json(self) -> dict[str, int | None]:
        return {"error": self.code}


def find(text: str) -> Unreadable | None:
    """The failure that a text tells of in its first MAX_KEPT characters, None where it tells of none."""
    text = text[:MAX_KEPT]
    for sign, meaning in SIGNS:
        if hit := sign.search(text):
            end = text.find("\n", hit.start())
            code = CODE.search(text[hit.start() : end if end >= 0 else None])
            return Unreadable(int(code[1]) if code else None, meaning, text)
    return None


def give_up(text: str) -> Unreadable:
    """The end of every parser that found nothing to read. Raises ParseError where no failure is told either."""
    if len(text) > MAX_CHARS:
        raise ParseError("too_long")
    if found := find(text):
        return found
    raise ParseError("not_understood" if text.strip() else "empty")


def values_of(parser: ModuleType, text: str) -> dict[str, Any]:
    """What a parser of keys and values reads, None where the tool prints NA; empty where it understands nothing."""
    try:
        found = parser.parse(text)
    except ParseError:
        return {}
    return {} if isinstance(found, Unreadable) else dict(found.values)


def sentences(meaning: str, chinese: bool = False) -> str:
    """Both sentences of a meaning in one language, the general ones for a key that is not known."""
    what, do = MEANINGS.get(meaning, MEANINGS["not_understood"])
    return what[0] + do[0] if chinese else f"{what[1]} {do[1]}"


def parse(text: str) -> Unreadable:
    """The failure a tool's output tells of. Raises ParseError where there is none."""
    return give_up(text)
