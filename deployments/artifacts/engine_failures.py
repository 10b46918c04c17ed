"""Why an engine did not start or did not answer, by what it printed: for `Step.means`, and for our own programs."""

import re

from deployments.steps import Text

MEANS: tuple[tuple[str, Text], ...] = (
    (
        r"out of memory|OutOfMemoryError|NPU out of memory|207018|No available memory for the cache blocks|"
        r"Free memory on device .* less than desired|not enough (kv cache|memory)|DefaultCPUAllocator: can't allocate|"
        r"Available KV cache memory: -\d|KV cache is needed, which is larger than|"
        r"tokens that can be stored in KV cache|\[devmm_ioctl_\w+ \d+\]<errno:12",
        Text(
            "内存不足：模型、KV 缓存和已有的进程放不下。请换空闲的 NPU 或更多 NPU，减小最大长度，再重试。",
            "There is not enough memory for the model and its KV cache beside what runs there. Choose free or more "
            "NPUs, or a smaller greatest length, then try again.",
        ),
    ),
    (
        r"Unknown quantization method: ascend|There is no available ascend quantizer|"
        r"argument --quantization/-q: invalid choice: 'ascend'",
        Text(
            "这个 vLLM 不认识 ascend 量化：没有装 vLLM-Ascend，或版本太旧。请安装带 vLLM-Ascend 的软件栈；"
            "没有 NPU 的服务器请选“参考”引擎。",
            "This vLLM does not know the quantization ascend: vLLM-Ascend is missing or too old. Install a stack with "
            "vLLM-Ascend; on a server without NPUs choose the engine “reference”.",
        ),
    ),
    (
        r"ModelSlim Quantization Config Not Found",
        Text(
            "子模型目录里没有 quant_model_description.json，不是 msModelSlim 量化的模型。请选择量化后的目录。",
            "The child's folder has no quant_model_description.json: msModelSlim did not make it. Choose the folder "
            "that the quantization wrote.",
        ),
    ),
    (
        r"KeyError: '?(model\.layers\.\d+\.|lm_head\.weight|visual\.|.*deq_scale)|"
        r"Unsupported Linear modelslim scheme|weight_scale not found in params_dict",
        Text(
            "量化描述与模型的层对不上：量化工具与 vLLM-Ascend 的版本不配，或文件不全。请用相配的版本重新量化。",
            "The description of the quantization does not fit the model's layers: the tool and vLLM-Ascend are of "
            "releases that do not go together, or files are missing. Quantize again with releases that do.",
        ),
    ),
    (
        r"NotImplementedError.*quant|quant.*NotImplementedError",
        Text(
            "这种芯片上的 vLLM-Ascend 不支持这种量化类型。请换一种类型重新量化。",
            "vLLM-Ascend does not support this type of quantization on this chip. Quantize with another type.",
        ),
    ),
    (
        r"not implemented for DT_BFLOAT16|scale not implemented for DT_FLOAT16",
        Text(
            "这种芯片不支持该数据类型。310P 与 910A 请选 float16；910B 上的 W8A8 模型请选 bfloat16 或 auto。",
            "The chip does not compute in this data type. Choose float16 on 310P and 910A, and bfloat16 or auto for a "
            "W8A8 model on 910B.",
        ),
    ),
    (
        r"Resource_Busy\(EL0005\)|EL0005: .{0,80}resources are busy",
        Text(
            "NPU 正被其他进程或容器占用，或正在复位。请换空闲的 NPU，或稍后再试。",
            "Another process or container holds the NPU, or it is being reset. Choose a free one, or try again later.",
        ),
    ),
    (
        r"Set visible device failed|set ASCEND_RT_VISIBLE_DEVICES:.{0,40} error",
        Text(
            "选定的 NPU 编号在这里无效（容器和虚拟机会重新编号）。请查看服务器页面上的 NPU，重新选择。",
            "The chosen NPU has no such number here: containers and virtual machines count anew. Look at the NPUs on "
            "the server's page and choose again.",
        ),
    ),
    (
        r"read binary_info_config\.json failed|Cannot find bin of op ",
        Text(
            "没有这种芯片的算子包，或版本不配。请用软件栈的安装作业装上与芯片、CANN 相配的算子包（ops/kernels）。",
            "The operators of this chip are missing, or of another version. Install the stack again, with the package "
            "of operators (ops, kernels) that goes with chip and CANN.",
        ),
    ),
    (
        r"trust_remote_code=True`?( |\.|$)|contains custom code which must be executed|"
        r"Could not locate (the )?configuration_\w+\.py",
        Text(
            "这个模型需要执行它自带的代码，或这些文件没有一起复制。"
            "请检查模型目录，信任它之后勾选“执行模型自带的代码”。",
            "This model needs the code that comes with it to be run, or those files were not copied. Check the "
            "model's folder, then tick “run the model's own code” if you trust it.",
        ),
    ),
    (
        r"is greater than the derived max_model_len",
        Text(
            "最大长度超过模型本身的上限。请改小，再重试。",
            "The greatest length is above what the model takes. Make it smaller, then try again.",
        ),
    ),
    (
        r"must be divisible by tensor parallel size",
        Text(
            "注意力头数不能被 NPU 的数目整除。请选 1、2、4 或 8 个 NPU，再重试。",
            "The number of attention heads cannot be divided by that of NPUs. Choose 1, 2, 4 or 8 NPUs, then try "
            "again.",
        ),
    ),
    (
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader|Cannot find any model weights|"
        r"no file named .{0,20}safetensors",
        Text(
            "模型的权重文件缺失或损坏。请重新下载或重新量化，再重试。",
            "Weight files of the model are missing or damaged. Download or quantize it again, then try again.",
        ),
    ),
    (
        r"Can't load tokenizer|Tokenizer class \S+ does not exist|data did not match any variant of untagged enum",
        Text(
            "分词器无法读取：文件缺失，或需要更新的 transformers。请检查模型目录里的 tokenizer 文件。",
            "The tokenizer cannot be read: files are missing, or it needs newer transformers. Check the tokenizer's "
            "files in the model's folder.",
        ),
    ),
    (
        r"Transformers does not recognize this architecture|architectures .* (are|is) not supported",
        Text(
            "这个环境还不认识该模型的结构。请安装更新的软件栈，再重试。",
            "The packages of this stack do not know the model's architecture. Install a newer stack, then try again.",
        ),
    ),
    (
        r"No module named '?vllm'?|No module named '?(torch|transformers)'?",
        Text(
            "在用的软件栈里缺少所需的包。请重新安装这个软件栈，再重试。",
            "The stack in use lacks a package that is needed. Install the stack again, then try again.",
        ),
    ),
)
KILLED = Text(
    "引擎被系统结束（SIGKILL），通常是主机内存不足。请用 dmesg 查看，释放内存或换更小的模型，再重试。",
    "The system ended the engine (SIGKILL), mostly for lack of host memory. Look in dmesg, free some memory or take a "
    "smaller model, then try again.",
)


def meaning(text: str) -> Text | None:
    """What the last output of an engine means; None where it is not known."""
    return next((words for pattern, words in MEANS if re.search(pattern, text, re.IGNORECASE)), None)


def ended_early(code: int, output: str) -> Text:
    """Why an engine is gone that was not to end."""
    if found := meaning(output):
        return found
    if code in (-9, 137):
        return KILLED
    number = code if code >= 0 else 128 - code
    return Text(
        f"引擎没有启动成功（退出码 {number}）。请看它最后的输出，改正后再重试。",
        f"The engine ended by itself (exit code {number}). See its last lines, put right what they name, then try "
        "again.",
    )
