"""What known last words of msModelSlim, atc and converter_lite mean, and what helps. Patterns for `Step.means`."""

from deployments.steps import Text

Means = tuple[tuple[str, Text], ...]

DISK: Means = (
    (
        r"No space left on device|\[Errno 28\]|os error 28",
        Text(
            "磁盘写满了。请清理磁盘（服务器页面的“清理”），或换一个磁盘上的目标目录，再重试。源模型没有改动。",
            "The disk is full. Make room (“Clean up” on the server's page) or choose a folder on another disk, then "
            "try "
            "again. The source model is as it was.",
        ),
    ),
)
MODELSLIM: Means = (
    *DISK,
    (
        r"`disable_names` has invalid key",
        Text(
            "配方指名的层在这个模型里不存在：层数或结构与配方的模型不同（例如把 28 层的配方用于 2 层，或把稠密配方用"
            "于 MoE）。"
            "请选与模型一致的“模型类型”，或选用默认配方。",
            "The recipe names layers that this model does not have: it has another number of layers, or is built "
            "otherwise, "
            "than the model the recipe was made for. Choose the model type that it really is, or accept the default "
            "recipe.",
        ),
    ),
    (
        r"mat1 and mat2 must have the same dtype",
        Text(
            "这个配方的平滑步骤不能处理 CPU 上的 bfloat16 权重。请在 NPU 上量化，或先把模型转换为 float32。",
            "This recipe smooths in float32 and cannot work with bfloat16 weights on a CPU. Quantize on an NPU, or "
            "give it "
            "the model in float32.",
        ),
    ),
    (
        r"Some tensors share memory",
        Text(
            "这个模型的输出层与词嵌入共享权重，旧版（V0）配方不能保存它。请用 V1 的配方（例如接受默认配方并选 w8a16），"
            "或用自己的配方。",
            "This model's head is its embedding, and a recipe of the older kind (V0) cannot save that. Take one of "
            "the newer "
            "kind, such as the default recipe for w8a16, or one of your own.",
        ),
    ),
    (
        r"Get tokenizer from pretrained failed|Tokenizer class \w+ does not exist",
        Text(
            "msModelSlim 环境里的 transformers 读不了这个模型的分词器：模型由更新的 transformers 保存，或缺文件。"
            "请用与该环境同版本的 transformers 重新保存分词器，或升级 msModelSlim 的环境。",
            "The transformers in msModelSlim's environment cannot read this model's tokenizer: a newer transformers "
            "saved it, "
            "or a file is missing. Save the tokenizer with the version of that environment, or bring that "
            "environment up.",
        ),
    ),
    (
        r"module 'torch' has no attribute 'npu'|Unable to import torch_npu[\s\S]{0,200}device.{0,20}npu",
        Text(
            "选择了 NPU，但 msModelSlim 的环境里没有 torch_npu。请重新运行“安装 msModelSlim”，或不选 NPU 以在 CPU 上"
            "量化。",
            "An NPU was chosen, and msModelSlim's environment has no torch_npu. Run “Install msModelSlim” again, or "
            "choose no "
            "NPU to quantize on the CPU.",
        ),
    ),
    (
        r"doesn't exist or not a (directory|file)",
        Text(
            "msModelSlim 找不到一个目录或文件（名字在上面的日志里）。请检查路径与 Agent 账号的读取权限。",
            "msModelSlim does not find a folder or file, which the log above names. Check the path, and that the "
            "agent's "
            "account can read it.",
        ),
    ),
    (
        r"Input path contains invalid characters",
        Text(
            "msModelSlim 只接受由字母、数字与 . _ - / 组成的路径。请把模型放到这样的路径下，再重试。",
            "msModelSlim takes only paths of letters, digits and . _ - /. Put the model below such a path, then try "
            "again.",
        ),
    ),
    (
        r"invalid QuantType value",
        Text(
            "已安装的 msModelSlim 没有这个量化类型。请选页面列出的类型。",
            "The msModelSlim that is installed has no such type. Choose one that the page lists.",
        ),
    ),
    (
        r"Enter y to continue|Get best practice error|EOF when reading a line",
        Text(
            "msModelSlim 没有为这个模型与类型验证过的配方，想改用别的，并在等待回答。请在页面上接受默认配方，或换一个"
            "类型。",
            "msModelSlim has no recipe that was verified for this model and type, would take another, and asked "
            "about it. "
            "Accept the default recipe on the page, or choose another type.",
        ),
    ),
    (
        r"model_pedigree .{1,60} does NOT exist|not found in practice repository",
        Text(
            "已安装的 msModelSlim 对这个模型类型没有任何配方。请换一个模型类型，或用自己的配方。",
            "The msModelSlim that is installed has no recipe at all for this model type. Choose another one, or a "
            "recipe of "
            "your own.",
        ),
    ),
    (
        r"NPU out of memory|out of memory\. Tried to allocate|DefaultCPUAllocator: (can't|not enough)",
        Text(
            "内存不够。请选更多空闲内存的 NPU（其上没有别的进程），或选逐层的配方；整模型的配方约需模型的 2–3 倍。",
            "There was not enough memory. Choose NPUs that nothing else uses, or a recipe that goes layer by layer; "
            "one for "
            "the whole model takes two to three times its size.",
        ),
    ),
    (
        r"main process disappeared|(?:^|\n)Killed\b",
        Text(
            "主进程被系统杀掉，通常因为主机内存不足（dmesg 里有 oom-kill）。请在内存更大的服务器上量化，或释放内存。",
            "The main process was killed, most often because the host ran out of memory (dmesg tells of oom-kill). "
            "Quantize "
            "on a server with more memory, or free some.",
        ),
    ),
    (
        r"not implemented for DT_BFLOAT16|param dtype not implemented",
        Text(
            "310P 不支持 bfloat16。请让作业以 float16 的 config.json 副本量化（服务器的芯片须已识别为 310P）。",
            "310P has no bfloat16. The job quantizes with a float16 copy of config.json where the server is known to "
            "be a "
            "310P; see its facts.",
        ),
    ),
    (
        r"InplaceIndexAdd",
        Text(
            "310P 上的即时编译出错（InplaceIndexAdd）。请改用 V1 配方，或在 A2/A3 上量化。",
            "The just-in-time compiler of 310P failed (InplaceIndexAdd). Take a V1 recipe, or quantize on A2 or A3.",
        ),
    ),
    (
        r"Could not locate the configuration_\w+\.py|trust_remote_code=True",
        Text(
            "模型带有自己的 Python 代码，而没有允许运行它，或缺少这些文件。请补齐文件；信任其来源时才勾选“允许模型自"
            "带代码”。",
            "The model has Python code of its own, which was not allowed to run or is missing. Bring the files; "
            "allow the "
            "model's own code only where you trust where it came from.",
        ),
    ),
    (
        r"satisfies the requirement puccinialin",
        Text(
            "Python 太旧：安装 accelerate 需要 3.9 或更新。请用软件栈所要求的 Python。",
            "That Python is too old: accelerate takes 3.9 or newer. Use the one that the stack asks for.",
        ),
    ),
    (
        r"No module named 'msmodelslim",
        Text(
            "msModelSlim 的环境不完整。请运行“安装 msModelSlim”。",
            "The environment of msModelSlim is not whole. Run “Install msModelSlim”.",
        ),
    ),
)
ATC: Means = (
    *DISK,
    (
        r"E19010|No parser is registered for Op",
        Text(
            "ONNX 里有 ATC 不认识的算子（多为第三方算子）。请用替换该算子的部署工具重新导出，或改写该层，再转换。",
            "The ONNX file has an operator that ATC does not know, mostly a third party's. Export it with the "
            "deployment "
            "toolkit that replaces it, or rewrite that layer, then convert again.",
        ),
    ),
    (
        r"in task_distribute[\s\S]{0,900}EOFError|main process disappeared",
        Text(
            "atc 的主进程没了，通常因为主机内存不足。请增加内存或交换区，或设 TE_PARALLEL_COMPILER=1、"
            "MAX_COMPILE_CORE_NUMBER=1。",
            "The main process of atc is gone, most often for lack of host memory. Use a server with more memory or "
            "swap, or "
            "fewer compile workers: TE_PARALLEL_COMPILER=1 and MAX_COMPILE_CORE_NUMBER=1.",
        ),
    ),
    (
        r"E10001|soc_?version.{0,60}(invalid|not support)",
        Text(
            "atc 不接受这个 soc_version。它须是 npu-smi 显示的名称前加 Ascend，如 Ascend910B3。",
            "atc does not take this soc_version. It is Ascend and the name that npu-smi prints, such as Ascend910B3.",
        ),
    ),
    (
        r"E10014|input_?shape.{0,80}(invalid|not match|error)",
        Text(
            "输入形状与模型不符。请按模型的输入写，如 input_ids:1,128;attention_mask:1,128。",
            "The input shapes do not fit the model. Write those of its inputs, such as "
            "input_ids:1,128;attention_mask:1,128.",
        ),
    ),
    (
        r"ATC run failed",
        Text(
            "atc 没有成功，原因在上面的日志里（以 E 开头的编号）。请按它所说修改，再重试。",
            "atc did not succeed; the log above has the reason, with a number that begins with E. Change what it "
            "says, then "
            "try again.",
        ),
    ),
)
LITE: Means = (
    *DISK,
    (
        r"CONVERT RESULT FAILED|Convert failed",
        Text(
            "converter_lite 没有成功，原因在上面的日志里。请核对 fmk 与模型文件是否一致。",
            "converter_lite did not succeed; the log above has the reason. Check that fmk and the model's file agree.",
        ),
    ),
    (
        r"error while loading shared libraries",
        Text(
            "converter_lite 缺少动态库。请在环境中加入它的 tools/converter/lib（LD_LIBRARY_PATH），或先安装 CANN。",
            "converter_lite lacks a library. Add its tools/converter/lib to LD_LIBRARY_PATH, or install CANN first.",
        ),
    ),
)
