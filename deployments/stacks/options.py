"""What an operator chooses for a plan, and which choices there can be."""

import re
from dataclasses import dataclass, fields

from deployments.stacks import actions
from deployments.steps import Text


@dataclass(frozen=True)
class Options:
    """What an operator chooses. An empty text is "as the data says".

    `route`: auto | venv | container. `driver`, `firmware`: versions that are wished instead of what is there.
    `cann`: own | shared; own lies in the stack's folder and needs no root, shared in /usr/local/Ascend.
    `layering`: empty | wheels, how vLLM comes without its torch (install.md 8a). `wheelhouse`: a folder on the
    server that takes the place of every index; `bundle`: `name@digest` of one that the console hands out, which does
    so too. `extra_index`: further indexes, with blanks between. `packages`: the folder with packages of the vendor that
    the agent's account runs; those of root lie where actions.PACKAGES says. `restart`: by_hand | window | now, who
    restarts the server after a change of driver or firmware; `window` is by the server's own clock, `22:00-05:00`.
    `smoke_model`: a folder on the server with a model that answers one prompt before the stack is used; '' looks in
    fixed places.

    `private`: "yes" where pip needs the site's authority or login for these indexes, which the server asks for when
    the step runs. `bundled`: packages of the vendor that the bundle holds, with blanks between; `bundled_in`: the
    folder on the server in which they lie, '' where they are fetched.
    """

    route: str = "auto"
    driver: str = ""
    firmware: str = ""
    cann: str = "own"
    layering: str = "empty"
    packages: str = actions.PACKAGES
    wheelhouse: str = ""
    index: str = ""
    registry: str = ""
    image_archive: str = ""
    account: str = "ascend-console"
    python: str = ""
    extra_index: str = ""
    bundle: str = ""
    restart: str = "by_hand"
    window: str = ""
    private: str = ""
    bundled: str = ""
    bundled_in: str = ""
    smoke_model: str = ""


INNER = ("private", "bundled", "bundled_in")  # what the console finds out, and nobody chooses
CHOICES = tuple(field.name for field in fields(Options) if field.name not in INNER)
RESTARTS = ("by_hand", "window", "now")
ROUTES, CANN_PLACES, LAYERINGS = ("auto", "venv", "container"), ("own", "shared"), ("empty", "wheels")
# What a person reads in place of each word.
WORDS: dict[str, dict[str, Text]] = {
    "route": {
        "auto": Text("自动选择", "whichever works here"),
        "venv": Text("Python 环境", "a Python environment"),
        "container": Text("容器", "a container"),
    },
    "cann": {
        "own": Text("软件栈自己的目录", "the stack's own folder"),
        "shared": Text("共用的 /usr/local/Ascend（以 root 安装）", "the shared /usr/local/Ascend, as root"),
    },
    "layering": {
        "empty": Text("从源码构建，不带设备", "built without a device"),
        "wheels": Text("用它的 wheel，不装其 torch", "its wheel, without its torch"),
    },
    "restart": {
        "by_hand": Text("由人在合适的时间重启", "by hand, when it suits"),
        "window": Text("在时间段内自动重启", "by itself, within a span of time"),
        "now": Text("立即自动重启", "by itself, at once"),
    },
}


def word(name: str, value: str) -> Text:
    """How the choice `value` of the field `name` reads; what has no words of its own reads as it is."""
    return WORDS.get(name, {}).get(value) or Text(value, value)


VERSION = r"[0-9A-Za-z][0-9A-Za-z._-]{0,39}"
PART = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._+-]+"
PATH = rf"/(?:{PART}/)*{PART}"
INDEX = r"https?://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9._~/+-]*)?"
BUNDLE = r"[a-z0-9][a-z0-9._-]{0,119}"
WINDOW = r"(?:[01]\d|2[0-3]):[0-5]\d-(?:[01]\d|2[0-3]):[0-5]\d"
A_PATH = Text("须为绝对路径，不含 ..。", "it is a whole path without “..”.")
# What each field of Options may be, where it is not empty.
FORMS: list[tuple[str, str, Text]] = [
    ("driver", VERSION, Text("须为版本号，例如 25.5.2。", "it is a version such as 25.5.2.")),
    ("firmware", VERSION, Text("须为版本号，例如 7.8.0.2.212。", "it is a version such as 7.8.0.2.212.")),
    ("packages", PATH, A_PATH),
    ("wheelhouse", PATH, A_PATH),
    ("image_archive", PATH, A_PATH),
    ("smoke_model", PATH, A_PATH),
    ("python", rf"{PATH}|[0-9.]{{1,12}}", Text("须为路径或版本。", "it is a path or a version.")),
    (
        "index",
        INDEX,
        Text("须为 http(s) 地址，不带密码。", "it is an http(s) address without a password."),
    ),
    (
        "extra_index",
        rf"{INDEX}(?: +{INDEX}){{0,4}}",
        Text("须为 http(s) 地址，以空格分隔，至多五个。", "it is http(s) addresses with blanks between, five at most."),
    ),
    ("bundle", rf"{BUNDLE}@[0-9a-f]{{64}}", Text("没有这个离线包。", "there is no such bundle.")),
    ("private", "yes", Text("须为 yes。", "it is yes.")),
    ("bundled", rf"{PART}(?: {PART}){{0,39}}", Text("须为文件名。", "it is names of files.")),
    ("bundled_in", PATH, A_PATH),
    (
        "registry",
        r"[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[a-z0-9._-]+)*",
        Text("须为镜像仓库，例如 quay.io/ascend。", "it is a registry such as quay.io/ascend."),
    ),
    (
        "window",
        WINDOW,
        Text("须为时间段，例如 22:00-05:00。", "it is a span of time such as 22:00-05:00."),
    ),
    ("account", r"[a-z_][a-z0-9_-]{0,31}", Text("须为账号名。", "it is the name of an account.")),
]


class BadOptions(ValueError):
    """Options that cannot be; `problems` holds one (name, Text) each."""

    def __init__(self, problems: list[tuple[str, Text]]) -> None:
        super().__init__("; ".join(f"{name}: {text.en}" for name, text in problems))
        self.problems = problems


def check(options: Options) -> None:
    """Raises BadOptions naming every field that does not fit."""
    problems = [
        (name, text)
        for name, form, text in FORMS
        if (value := getattr(options, name)) and not re.fullmatch(form, value, re.ASCII)
    ]
    for name, known in (("route", ROUTES), ("cann", CANN_PLACES), ("layering", LAYERINGS), ("restart", RESTARTS)):
        if getattr(options, name) not in known:
            words = ", ".join(known)
            problems.append((name, Text(f"须为其中之一：{words}。", f"it is one of {words}.")))
    first, _dash, last = options.window.partition("-")
    if options.restart == "window" and first == last:
        problems.append(("window", Text("请填写重启的时间段。", "name the span of time for the restart.")))
    if problems:
        raise BadOptions(problems)
