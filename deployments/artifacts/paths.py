"""Paths of models on servers, as people and other machines name them."""

import posixpath
import re

from deployments.steps import Text

MOST = 1000
PATH = r"/[^\x00-\x1f\x7f]{1,999}"  # also what forms check first
EXAMPLE = "/data/models/Qwen3-8B"  # what they show instead of it
UNSHOWN = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]")
SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")


def problem(path: str) -> Text | None:
    """What is wrong with a model's path, None where nothing is."""
    if not path.startswith("/"):
        return Text("请写绝对路径，如 /data/models/Qwen3-8B。", "Give the whole path, such as /data/models/Qwen3-8B.")
    if len(path) > MOST or UNSHOWN.search(path):
        return Text(
            f"路径须少于 {MOST} 个字符，且不含控制字符。",
            f"A path has fewer than {MOST} characters, and no control characters.",
        )
    plain = posixpath.normpath(path)
    if plain != tidy(path) or plain.startswith("//"):
        return Text(f"请把路径写成 {plain}。", f"Write the path as {posixpath.normpath('/' + path.lstrip('/'))}.")
    if plain == "/" or any(plain == root or plain.startswith(f"{root}/") for root in SYSTEM):
        return Text(f"{plain} 属于系统，模型不能放在那里。", f"{plain} is the system's own: no model lies there.")
    return None


def tidy(path: str) -> str:
    """The path without a slash at its end."""
    return path.rstrip("/") or "/"


def lock(path: str) -> str:
    """Of a job that makes or deletes the model there: the same lock in every kind, however the path is written."""
    return f"artifact:{tidy(path)}"


def inside(path: str, folder: str) -> bool:
    """Whether `path` is the folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
