"""Changes of single settings, of words that this vLLM does not know, and of variables."""

from collections.abc import Callable

from deployments.serving.fields import Settings
from deployments.serving.remedy_case import Case, Worked
from deployments.steps import Text

CONNECT_S, LONG_S = 120, 600


def _dtype(name: str) -> Callable[[Case], Worked | None]:
    def work(case: Case) -> Worked | None:
        now = case.settings.dtype
        return None if now == name else Worked({"dtype": name}, (Text(f"{now} → {name}", f"{now} → {name}"),))

    return work


def no_flag(case: Case) -> Worked | None:
    """Out of the expert's words with its values, or back to the default of its field."""
    named = (case.said.get("flags") or case.said.get("flag") or "").split()
    flags = [word.partition("=")[0] for word in named if word.startswith("--")]
    change: dict[str, object] = {}
    extra = _without(case.settings.extra, flags)
    if extra != case.settings.extra:
        change["extra"] = extra or None
    names = [flag.removeprefix("--").removeprefix("no-").replace("-", "_") for flag in flags]
    change |= {name: None for name in names if name in case.data and name in Settings.__dataclass_fields__}
    if not change:
        return None
    words = " ".join(flags)
    return Worked(change, (Text(f"去掉 {words}", f"Without {words}"),))


def _without(extra: list[str], flags: list[str]) -> list[str]:
    """The words up to the next flag are values of the one before."""
    left: list[str] = []
    skips = False
    for word in extra:
        if word.startswith("--"):
            skips = word.partition("=")[0] in flags
        if not skips:
            left.append(word)
    return left


def port(case: Case) -> Worked | None:
    """Only where somebody gave one by hand: else the console leases it."""
    return no_flag(case.saying({"flags": "--port"}))


def no_quantization(case: Case) -> Worked | None:
    return Worked({"quantization": None}) if case.settings.quantization != "auto" else None


def trust(case: Case) -> Worked | None:
    return None if case.settings.trust_remote_code else Worked({"trust_remote_code": True})


def batch_up(case: Case) -> Worked | None:
    length = case.context
    if not length or case.settings.max_num_batched_tokens >= length:
        return None
    now = case.whole("batch") or case.settings.max_num_batched_tokens
    return Worked({"max_num_batched_tokens": length}, (Text(f"{now:,} → {length:,}", f"{now:,} → {length:,}"),))


def no_speculation(case: Case) -> Worked | None:
    if not case.settings.speculative_method:
        return None
    return Worked({"speculative_method": None, "num_speculative_tokens": None, "speculative_model": None})


def _set(**variables: str) -> Callable[[Case], Worked | None]:
    def work(case: Case) -> Worked | None:
        if all(case.settings.env.get(name) == value for name, value in variables.items()):
            return None
        words = " ".join(f"{name}={value}" for name, value in variables.items())
        return Worked(case.env(**variables), (Text(words, words),))

    return work


def _unset(name: str) -> Callable[[Case], Worked | None]:
    def work(case: Case) -> Worked | None:
        if name not in case.settings.env:
            return None
        return Worked(case.env(**{name: None}), (Text(f"去掉 {name}", f"Without {name}"),))

    return work


def hccl_timeout(case: Case) -> Worked | None:
    text = case.settings.env.get("HCCL_CONNECT_TIMEOUT", "")
    now = int(text) if text.isdecimal() and 0 < len(text) < 8 else CONNECT_S
    if now >= LONG_S:
        return None
    words = f"{now} s → {LONG_S} s"
    return Worked(case.env(HCCL_CONNECT_TIMEOUT=str(LONG_S)), (Text(words, words),))


SETTING_WAYS: dict[str, Callable[[Case], Worked | None]] = {
    "float16": _dtype("float16"),
    "bfloat16": _dtype("bfloat16"),
    "no_flag": no_flag,
    "port": port,
    "no_quantization": no_quantization,
    "trust": trust,
    "batch_up": batch_up,
    "no_speculation": no_speculation,
    "hccl_timeout": hccl_timeout,
    "hccl_ports": _set(HCCL_NPU_SOCKET_PORT_RANGE="auto", HCCL_HOST_SOCKET_PORT_RANGE="auto"),
    "no_expandable": _set(PYTORCH_NPU_ALLOC_CONF="expandable_segments:False"),
    "utf8": _set(LC_ALL="C.UTF-8"),
    "no_aiv": _unset("HCCL_OP_EXPANSION_MODE"),
    "no_rank_table": _unset("RANK_TABLE_FILE"),
}
