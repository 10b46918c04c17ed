"""Whether CANN's set_env.sh was sourced twice, or that of another version: what the agent's programs inherit, and what
every new shell gets from its start-up files."""

import re
from collections.abc import Iterator

from deployments.kinds.check_probes.finding import Finding, failed, ok, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.stack import cann_versions, toolkit_version
from deployments.steps import Text

START_FILES = ("/etc/profile", "/etc/bashrc", "/etc/bash.bashrc", "/etc/environment")
OF_HOME = (".bashrc", ".bash_profile", ".profile", ".zshrc")
SOURCED = re.compile(r"^\s*(?:source|\.)\s+[\"']?([^\"'\s;&|]*set_env\.(?:sh|bash))")
HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")  # what set_env.sh exports
OF_CANN = re.compile(r"^(/\S*?/(?:ascend-toolkit/(?:latest|[\d.]\w*(?:\.\w+)*)|cann(?:-[\d.][\w.-]*)?))(?:/|$)")
AGAIN = Text("再重启代理。", "then restart the agent.")


def profiles(host: Host, pattern: "re.Pattern[str]") -> Iterator[tuple[str, str]]:
    """(file, first group) of each line of a shell's start-up files that matches."""
    home = host.env.get("HOME", "").rstrip("/")
    files = [*START_FILES, *(f"/etc/profile.d/{name}" for name in host.look("/etc/profile.d") if name.endswith(".sh"))]
    files += [f"{home}/{name}" for name in OF_HOME] if home.startswith("/") else []
    for file in files[:200]:
        for line in host.peek(file).splitlines():
            if hit := pattern.match(line):
                yield file, hit[1]


def inherited(host: Host) -> list[Finding]:
    return [of_environment(host), *of_files(host)]


def folders_of_cann(host: Host) -> list[str]:
    """CANN folders on LD_LIBRARY_PATH, each as often as it brings the same entry."""
    entries = [part for part in host.env.get("LD_LIBRARY_PATH", "").split(":") if part]
    return [hit[1] for entry in entries if (hit := OF_CANN.match(entry + "/"))]


def version_at(host: Host, folder: str) -> str:
    """The version of a CANN folder, the folder itself where no file tells."""
    return toolkit_version(host, folder) or folder


def of_environment(host: Host) -> Finding:
    """What the agent was started with goes on to every step and engine."""
    wanted = "0–1 × set_env.sh"
    named = [host.env[name].rstrip("/") for name in HOMES if host.env.get(name, "").startswith("/")]
    versions = sorted({version_at(host, folder) for folder in [*folders_of_cann(host), *named]})
    entries = [part for part in host.env.get("LD_LIBRARY_PATH", "").split(":") if OF_CANN.match(part + "/")]
    if len(versions) > 1:
        remedy = Text(
            "代理的环境里混着几个版本的 CANN，作业会加载到错的库：从不带 set_env.sh 的环境启动代理，",
            "The agent's environment mixes several versions of CANN, so jobs load wrong libraries: start the agent "
            "from a shell without set_env.sh,",
        )
        return failed(", ".join(versions), wanted, Text(remedy.zh + AGAIN.zh, f"{remedy.en} {AGAIN.en}"))
    if len(entries) != len(set(entries)):
        remedy = Text(
            "set_env.sh 被读了两次以上，库路径重复：去掉启动文件里多余的一行，",
            "set_env.sh was sourced more than once: take the second one out of the start-up files,",
        )
        return warning(
            f"{len(entries)} / {len(set(entries))}", wanted, Text(remedy.zh + AGAIN.zh, f"{remedy.en} {AGAIN.en}")
        )
    installed = cann_versions(host)
    if versions and installed and versions[0] not in installed and not is_of_stacks(host, named):
        remedy = Text(
            f"代理的环境指向 {versions[0]}，而已安装的是 {'、'.join(installed)}：删去旧的 set_env.sh，",
            f"The agent's environment points to {versions[0]}, while {', '.join(installed)} is installed: drop the old "
            "set_env.sh,",
        )
        return failed(versions[0], ", ".join(installed), Text(remedy.zh + AGAIN.zh, f"{remedy.en} {AGAIN.en}"))
    return ok(versions[0] if versions else "—", wanted)


def is_of_stacks(host: Host, named: list[str]) -> bool:
    return any(folder.startswith(f"{host.stacks}/") for folder in named)


def of_files(host: Host) -> list[Finding]:
    """The start-up files of shells: each set_env.sh once, and one version of CANN."""
    found = [(file, name) for file, name in profiles(host, SOURCED)]
    if not found:
        return []
    words = "; ".join(f"{file}: {name}" for file, name in found)
    missing = [name for _file, name in found if name.startswith("/") and not host.exists(name)]
    if missing:
        remedy = Text(
            f"启动文件读取的 {missing[0]} 不存在：改成已安装的路径。",
            f"A start-up file sources {missing[0]}, which is not there: name one that is.",
        )
        return [warning(words, "set_env.sh", remedy, about="shell")]
    cann = [name for _file, name in found if OF_CANN.match(name)]
    versions = sorted({version_at(host, OF_CANN.match(name)[1]) for name in cann})  # type: ignore[index]
    if len(versions) > 1 or len(cann) > 1:
        remedy = Text(
            "每个新终端都会读几次 CANN 的 set_env.sh，路径会混在一起：只留一行。",
            "Every new shell sources CANN's set_env.sh several times, which mixes the paths: keep one line.",
        )
        return [(failed if len(versions) > 1 else warning)(words, "1 × set_env.sh", remedy, about="shell")]
    return [ok(words, "1 × set_env.sh", about="shell")]
