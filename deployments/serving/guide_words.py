"""Settings as older guides write them: which field each word becomes, which is left out, and the true sentence."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deployments.serving import flags, variables
from deployments.serving.settings import FIELDS
from deployments.steps import Text

MOST_TEXT = 20_000
MOST_WORDS = 100
# key=value, key: value, key value: quotes and brackets hold what belongs together.
VALUE = r"""("[^"\n]*"|'[^'\n]*'|\[[^\]\n]*\]|\{[^\n]*\}|\d+(?:,\d+)+|[^\s,;()]+)"""
PAIR = re.compile(
    r"(?<!\w)(?P<flag>--?[A-Za-z][A-Za-z0-9-]*)(?:(?:\s*=\s*|[ \t]+)(?!-)(?P<said>" + VALUE + r"))?"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*[=:：]\s*(?P<value>" + VALUE + r")"
)  # fmt: skip
BARE = re.compile(r"AscendOptions|swapon|mkswap|fallocate|npu-smi\s+topo")


@dataclass(frozen=True)
class Heard:
    """One word of a guide. `field` is '' where it is left out; `becomes` is what the engine gets instead."""

    word: str
    field: str
    value: Any
    becomes: str
    why: Text


@dataclass(frozen=True)
class Understood:
    """`settings` are JSON values of fields; `heard` one for each word, in the order they stand."""

    settings: dict[str, Any] = field(default_factory=dict)
    heard: tuple[Heard, ...] = ()


_NO_CLASS = Text("vLLM 没有 AscendOptions 这个类；设置写在下面的字段里。",
                 "vLLM has no class AscendOptions; the fields below are its settings.")  # fmt: skip
_NO_OM = Text("vLLM 加载 Hugging Face 格式的目录，不加载 .om 文件。请选择模型。",
              "vLLM loads a folder in Hugging Face layout, never an .om file. Choose the model.")  # fmt: skip
_NO_SWAP = Text(
    "vLLM 0.23.0 已删除此参数，带上会启动失败：被抢占的请求会重算。可改用主机内存存放 KV 块：--kv-offloading-size。",
    "The flag is gone from vLLM 0.23.0 and would stop the start; what is preempted is computed again. Host memory "
    "can hold KV blocks instead: --kv-offloading-size.",
)
_BATCHING = Text(
    "连续批处理总是开启，没有这个开关；相近的是同时的请求数与每步的词元数。",
    "Batching is always continuous, there is no such switch; requests at once and tokens of one step come nearest.",
)
_NO_SWAP_FILE = Text(
    "NPU 内存不能用主机的交换文件；推理服务器上交换只会变慢。",
    "The memory of NPUs cannot use a swap file of the host; on a server that serves it only slows things down.",
)
LEFT_OUT: dict[str, Text] = {
    "AscendOptions": _NO_CLASS,
    "swap_space": _NO_SWAP,
    "dynamic_batching": _BATCHING,
    "swapon": _NO_SWAP_FILE,
    "mkswap": _NO_SWAP_FILE,
    "fallocate": _NO_SWAP_FILE,
    "max_tokens": Text("由每个请求给出，不是引擎的设置。", "Each request says it; it is no setting of the engine."),
    "temperature": Text("由每个请求给出，不是引擎的设置。", "Each request says it; it is no setting of the engine."),
    "npu_topo": Text(
        "命令是 npu-smi info -t topo；控制台自己会看。", "It is npu-smi info -t topo; the console looks itself."
    ),
    "enable_acl_graph": Text(
        "图默认就开；不用图请勾选“不用图”。", "Graphs are on by default; tick “No graphs” for none."
    ),
    "worker_use_ray": Text("跨服务器时由执行后端（backend）决定。", "The field backend decides, over several servers."),
}
_BLOCK = Text("NPU 上开启前缀缓存时块大小固定为 128，填别的也会被改掉，已略去。",
              "On NPUs with prefix caching the block is 128, whatever is asked. Left out.")  # fmt: skip
# Another word for a field, with what is true of it.
OTHER: dict[str, tuple[str, Text]] = {
    "max_batch_size": ("max_num_seqs", Text("vLLM 是连续批处理，这里填的是同时处理的序列数。",
                                           "vLLM batches continuously; this is the number of sequences at once.")),
    "batch_size": ("max_num_seqs", Text("vLLM 是连续批处理，这里填的是同时处理的序列数。",
                                       "vLLM batches continuously; this is the number of sequences at once.")),
    "max_dynamic_batch_size": ("max_num_seqs", _BATCHING),
    "gpu_util": ("gpu_memory_utilization", Text("它是内存份额，不是负载率。", "A share of memory, not a load.")),
    "npu_util": ("gpu_memory_utilization", Text("它是内存份额，不是负载率。", "A share of memory, not a load.")),
    "npu_memory_utilization": ("gpu_memory_utilization", Text("参数名里仍写 gpu。", "The flag keeps the word gpu.")),
    "max_seq_len": ("max_model_len", Text("vLLM 称之为 max_model_len。", "vLLM calls it max_model_len.")),
    "max_length": ("max_model_len", Text("vLLM 称之为 max_model_len。", "vLLM calls it max_model_len.")),
    "context_length": ("max_model_len", Text("vLLM 称之为 max_model_len。", "vLLM calls it max_model_len.")),
    "tp": ("tensor_parallel_size", Text("即张量并行。", "It is tensor parallel.")),
    "tp_size": ("tensor_parallel_size", Text("即张量并行。", "It is tensor parallel.")),
    "pp": ("pipeline_parallel_size", Text("即流水并行。", "It is pipeline parallel.")),
    "dp": ("data_parallel_size", Text("即数据并行。", "It is data parallel.")),
    "model_name": ("served_model_name", Text("即服务模型名。", "It is the served model name.")),
}  # fmt: skip
PLAIN = Text("同名的设置。", "The setting of that name.")


def understand(text: str) -> Understood:
    """What the lines of a guide come to; what nobody knows is left out with a word on it."""
    text = text[:MOST_TEXT]
    found: list[tuple[int, Heard]] = []
    for match in BARE.finditer(text):
        word = "npu_topo" if match[0].startswith("npu-smi") else match[0]
        found.append((match.start(), Heard(match[0], "", None, "", LEFT_OUT[word])))
    for match in PAIR.finditer(text):
        found += [(match.start(), one) for one in _pair(match)]
    heard = [one for _, one in sorted(found, key=lambda pair: pair[0])][:MOST_WORDS]
    return Understood(_merged(heard), tuple(heard))


def _merged(heard: list[Heard]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for one in heard:
        if isinstance(one.value, dict):
            made[one.field] = {**made.get(one.field, {}), **one.value}
        elif one.field:
            made[one.field] = one.value
    return made


def _pair(match: re.Match[str]) -> list[Heard]:
    flag = match["flag"]
    name = (flag.lstrip("-").replace("-", "_") if flag else match["name"]) or ""
    given = (match["said"] if flag else match["value"]) or ""
    if flag and not flag.startswith("--"):
        name = flags.SHORT.get(name, name)
    word = match[0].strip()[:120]
    if name in ("import", "from", "llm", "options") or (not flag and given in ("AscendOptions", "LLM")):
        return []
    return [_one(word, name, given.strip("\"'"))]


def _one(word: str, name: str, value: str) -> Heard:
    for special in (_model, _npus, _block, _variable):
        if heard := special(word, name, value):
            return heard
    if name in LEFT_OUT:
        return Heard(word, "", None, "", LEFT_OUT[name])
    named, why = OTHER.get(name, ("", PLAIN))
    named = named or flags.FIELDS.get(flags.plain(name), name)
    if named in FIELDS and FIELDS[named].metadata["widget"] != "table":
        return _field(word, named, value, why, off=name.startswith("no_"))
    return Heard(
        word, "", None, "", Text(f"没有叫 {name[:60]} 的设置，已略去。", f"No setting is called {name[:60]}. Left out.")
    )


def _model(word: str, name: str, value: str) -> Heard | None:
    if name != "model":
        return None
    if value.endswith(".om"):
        return Heard(word, "", None, "", _NO_OM)
    return Heard(word, "", None, "", Text("模型在上一步选择。", "The model is chosen in the first step."))


def _npus(word: str, name: str, value: str) -> Heard | None:
    """How many they are tells how the model is divided; which ones, the console chooses."""
    if name not in ("npu_ids", "device_ids", "npu_id", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"):
        return None
    many = len(set(re.findall(r"\d+", value)))
    why = Text(
        "具体的 NPU 在“服务器与 NPU”里选择，由 ASCEND_RT_VISIBLE_DEVICES 告诉引擎；个数成为张量并行。",
        "Which ones is chosen under servers and NPUs, and ASCEND_RT_VISIBLE_DEVICES tells the engine; their number "
        "becomes tensor parallel.",
    )
    if not 0 < many <= 64:
        return Heard(word, "", None, "", why)
    return Heard(word, "tensor_parallel_size", many, f"--tensor-parallel-size {many}", why)


def _block(word: str, name: str, value: str) -> Heard | None:
    return Heard(word, "", None, "128", _BLOCK) if name == "block_size" and value not in ("0", "128") else None


def _variable(word: str, name: str, value: str) -> Heard | None:
    if name in variables.KNOWN:
        why = Text("环境变量。", "A variable of the environment.")
        return Heard(word, "env", {name: value}, f"{name}={value}", why)
    if name in variables.DEPRECATED:
        key = variables.DEPRECATED[name]
        why = Text(f"已过时：改写附加配置 {key}。", f"Deprecated: the additional config has {key} for it.")
        number: Any = int(value) if value.isdecimal() and len(value) < 6 else 1
        known = number if key in ("weight_nz_mode", "enable_fused_mc2", "flashcomm2_parallel_size") else number != 0
        return Heard(word, "additional", {key: known}, f"{key}: {str(known).lower()}", why)
    told = next(iter(variables.problems({name: value}, eager=True, family="")), None) if name.isupper() else None
    return Heard(word, "", None, "", told) if told else None


def _field(word: str, name: str, value: str, why: Text, *, off: bool) -> Heard:
    read = READERS.get(FIELDS[name].metadata["widget"], str)
    switch = FIELDS[name].metadata["limits"].get("choices") == ("auto", "on", "off")
    try:
        made = _switched(value, off) if switch else read("false" if off else value)
    except ValueError:
        told = Text(f"“{value[:40]}”不能成为 {name}，已略去。", f"“{value[:40]}” is no {name}. Left out.")
        return Heard(word, "", None, "", told)
    return Heard(word, name, made, f"--{name.replace('_', '-')} {value}".strip(), why)


def _switched(value: str, off: bool) -> str:
    return "off" if off or value.lower() in ("false", "0", "off") else "on"


def _whole(value: str) -> int:
    """`16384`, `16,384`, `16k` (1,000) and `16K` (1,024), as vLLM reads them."""
    found = re.fullmatch(r"([0-9][0-9,_]{0,15})([kK]?)", value)
    if not found:
        raise ValueError(value)
    number = int(found[1].replace(",", "").replace("_", ""))
    return number * {"": 1, "k": 1000, "K": 1024}[found[2]]


def _share(value: str) -> float:
    if value.endswith("%"):
        return float(value[:-1]) / 100
    number = float(value)
    if not 0 < number <= 100:
        raise ValueError(value)
    return number if number <= 1 else number / 100


def _flag(value: str) -> bool:
    return value.lower() not in ("false", "0", "no", "off")


READERS: dict[str, Callable[[str], Any]] = {
    "integer": _whole,
    "number": _share,
    "flag": _flag,
    "texts": lambda value: re.findall(r"[^\s,\[\]\"']+", value),
}
