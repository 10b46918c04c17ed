"""Ways of converting a model, and what people say who mean one of them, lines of a guide included."""

import re
from typing import NamedTuple

from deployments.steps import Text


class Way(NamedTuple):
    """`tool`: msmodelslim | atc | converter_lite. `takes`: the ending of the file, '' for a model's folder. `framework`
    is the tool's word for what it takes. `serves`: whether vLLM can load what comes out."""

    title: Text
    tool: str
    takes: str = ""
    framework: str = ""
    serves: bool = False


NOT_FOR_VLLM = Text(
    "不能用于 vLLM：vLLM-Ascend 直接加载 Hugging Face 的 safetensors，不读 OM、MindIR 或 ONNX。这只用于 ACL 或 "
    "MindSpore Lite。",
    "Not for vLLM: vLLM-Ascend loads the safetensors of Hugging Face itself and reads no OM, MindIR or ONNX. This is "
    "for ACL "
    "or MindSpore Lite.",
)
WAYS: dict[str, Way] = {
    "fp8_bf16": Way(Text("FP8 权重 → BF16", "FP8 weights → BF16"), "msmodelslim", serves=True),
    "mxfp8": Way(
        Text("BF16 或 FP8 → MXFP8（昇腾 950）", "BF16 or FP8 → MXFP8 (Ascend 950)"), "msmodelslim", serves=True
    ),
    "onnx_om": Way(Text("ONNX → OM（atc）", "ONNX → OM (atc)"), "atc", ".onnx", "5"),
    "air_om": Way(Text("AIR → OM（atc）", "AIR → OM (atc)"), "atc", ".air", "1"),
    "onnx_mindir": Way(
        Text("ONNX → MindIR（converter_lite）", "ONNX → MindIR (converter_lite)"), "converter_lite", ".onnx", "ONNX"
    ),
    "mindir_ascend": Way(
        Text("MindIR → 昇腾优化的 MindIR（converter_lite）", "MindIR → MindIR for Ascend (converter_lite)"),
        "converter_lite",
        ".mindir",
        "MINDIR",
    ),
}
CHOICES = Text(
    '三种可行的做法：在模型自己的脚本里 mindspore.export(net, 输入, file_name="名字", file_format="MINDIR") 得到 '
    ".mindir；"
    '同样以 file_format="ONNX" 得到 .onnx；要 OM 则再把 ONNX 用 atc 转换（onnx_om）。',
    'There are three honest choices: mindspore.export(net, inputs, file_name="name", file_format="MINDIR") in the '
    "model's own "
    'script, for a .mindir; the same with file_format="ONNX", for an .onnx; and for an OM, convert that ONNX by atc '
    "(onnx_om).",
)
EXPORT = re.compile(r"\bexport\s*\(", re.IGNORECASE)
FORMAT = re.compile(r"file_format\s*=\s*['\"](\w+)['\"]", re.IGNORECASE)
NAME = re.compile(r"file_name\s*=\s*['\"]([^'\"]{1,80})['\"]", re.IGNORECASE)


class NoWay(ValueError):
    """Words that stand for no way; `text` says why, and what to do instead."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def read(words: str) -> str:
    """The key of a way. Raises NoWay."""
    plain = words.strip()
    if plain in WAYS:
        return plain
    if EXPORT.search(plain):
        raise NoWay(_export(plain))
    if "torch.load" in plain or re.search(r"\.(pt|pth|bin)\b", plain):
        raise NoWay(
            Text(
                "torch.load 会执行 pickle 文件里的代码，还会把整个模型放进内存。请用 safetensors 的模型目录；vLLM 直"
                "接加载它，无需转换。",
                "torch.load runs whatever code a pickle holds and takes the whole model into memory. Use the model's "
                "folder of "
                "safetensors: vLLM loads that, and nothing needs to be converted.",
            )
        )
    if "QuantAwareTrainCell" in plain:
        raise NoWay(
            Text(
                "MindSpore 里没有 QuantAwareTrainCell。要为 vLLM 量化，请用作业“量化模型”（w8a8 等）。",
                "MindSpore has no QuantAwareTrainCell. To quantize for vLLM, use the job “Quantize a model” (w8a8 "
                "and others).",
            )
        )
    named = ", ".join(WAYS)
    raise NoWay(
        Text(
            f"没有“{plain[:60]}”这种转换。可选：{named}。",
            f"There is no conversion “{plain[:60]}”. There are: {named}.",
        )
    )


def _export(words: str) -> Text:
    wanted, name = FORMAT.search(words), NAME.search(words)
    made = wanted[1].upper() if wanted else "—"
    ending = f"（{name[1]}）" if name else ""
    zh, en = "这一行不能得到 OM", "This line makes no OM"
    if name and name[1].endswith(".om") and made == "MINDIR":
        zh = f"这一行写出的是 MindIR 内容，只是文件名{ending}像 OM"
        en = f"This line writes a MindIR in a file that is merely called {name[1]}"
    return Text(
        f"{zh}，而且缺少必需的输入张量。{CHOICES.zh}{NOT_FOR_VLLM.zh}",
        f"{en}, and it lacks the inputs, which export must have. {CHOICES.en} {NOT_FOR_VLLM.en}",
    )
