"""NPUs, their driver, CANN and the packages of the stack."""

from deployments.serving.failures import (
    CHECK,
    EAGER,
    FLOAT16,
    FOLLOWS,
    INSTALL,
    OTHER_NPU,
    RESET,
    Known,
    job,
    say,
    way,
)  # fmt: skip
from deployments.steps import Text

FUSION = way("no_fusion", "关掉量化与归一化的融合。", "Switch off the fusion of quantization and norm.")
NO_AIV = way("no_aiv", "不设置 HCCL_OP_EXPANSION_MODE。", "Leave HCCL_OP_EXPANSION_MODE out.")
NEWER = job("install", "安装更新的、配套的软件栈。", "Install a newer stack whose parts go together.")

TABLE = (
    Known(
        "no-device",
        r"Failed to infer device type",
        Text(
            "没有读入 CANN 或 NNAL 的环境，引擎看不到 NPU。",
            "The environment of CANN or NNAL was not read, and the engine sees no NPU.",
        ),
        (INSTALL, CHECK),
    ),
    Known(
        "no-nnal",
        r"libatb\.so: cannot open shared object file",
        Text(
            "NNAL（ATB）没有安装，或没有读入它的环境。",
            "NNAL (ATB) is not installed, or its environment was not read.",
        ),
        (INSTALL, CHECK),
    ),
    Known(
        "visible-devices",
        r"[Ss]et visible device failed|set ASCEND_RT_VISIBLE_DEVICES:.{0,40} error|AssertionError: Invalid device id|"
        r"desc=\[device id error\]",
        Text(
            "选定的 NPU 编号在这里无效：容器和虚拟机会重新编号，或少了一张卡。",
            "The chosen NPU has no such number here: containers and virtual machines count anew, or a card is gone.",
        ),
        (OTHER_NPU, CHECK),
    ),
    Known(
        "busy",
        r"Resource_Busy\(EL0005\)|EL0005: .{0,120}resources are busy",
        Text(
            "NPU 正被其他进程或容器占用，或正在复位。",
            "Another process or container holds the NPU, or it is being reset.",
        ),
        (OTHER_NPU, RESET),
    ),
    Known(
        "no-hal",
        r"Can't get ascend_hal device count|drvDeviceOpen failed: deviceId|open devdrv_device\(\d+\) failed|"
        r"dcmi mod\w+ initialize\w* failed\. ret is -\d+",
        Text(
            "驱动打不开 NPU：设备节点、权限或驱动有问题。",
            "The driver cannot open the NPU: its device nodes, rights, or the driver itself.",
        ),
        (CHECK,),
    ),
    Known(
        "no-context",
        r"reason=\[context pointer null\]|runtime result = 107002",
        Text("程序没有得到可用的 NPU。", "The program was given no NPU that it can use."),
        (CHECK, OTHER_NPU),
    ),
    Known(
        "chip-unsupported",
        r"Can not support soc_version: ?(?P<soc>\w+)|EZ9903: .{0,120}support for \w+ is not implemented",
        Text("vLLM-Ascend 不支持这种芯片。", "vLLM-Ascend does not support this chip."),
        (say("换一台 A2、A3 或 310P 的服务器。", "Serve it on a server with A2, A3 or 310P."),),
    ),
    Known(
        "chip-other",
        r"does not match the (installed version's|current) device|Current device type: .{0,60}does not match|"
        r"socversion \w+ of bin package does not match",
        Text("装的是为另一种芯片做的包。", "What is installed was made for another chip."),
        (INSTALL,),
    ),
    Known(
        "operators",
        r"read binary_info_config\.json failed|AclSetCompileopt\(.{0,160}error code is 500001|"
        r"not in libopapi\.so, or libopapi\.so",
        Text(
            "算子包缺失，或与 CANN、芯片的版本不配。",
            "The package of operators is missing, or does not go with CANN and chip.",
        ),
        (INSTALL, CHECK),
    ),
    Known(
        "operator-missing",
        r"Cannot find bin of op (?P<op>\w+)",
        Text("这种芯片没有算子 {op}。", "There is no operator {op} for this chip."),
        (FUSION, INSTALL),
    ),
    Known(
        "extension",
        r"'_C_ascend' object has no attribute|No module named 'vllm_ascend\.|"
        r"module 'vllm_ascend' has no attribute 'register'",
        Text(
            "vLLM-Ascend 没有完整安装，或与 vLLM 的版本不配。",
            "vLLM-Ascend is not installed whole, or is not of the release that goes with vLLM.",
        ),
        (INSTALL,),
    ),
    Known(
        "libraries",
        r"libtorch_npu\.so: undefined symbol|version `(GLIBC|GLIBCXX)_[\d.]+' not found|"
        r"ascend_transport\.so: cannot open|"
        r"E40024: .{0,200}PY_SSIZE_T_CLEAN|Two accelerators cannot be used at the same time in PyTorch|"
        r"uses? NumPy 1\.x cannot be run in|`np\.float_` was removed|corrupted size vs\. prev_size",
        Text("软件栈里的库互不相配。", "Libraries of the stack do not go together."),
        (INSTALL, CHECK),
    ),
    Known(
        "no-package",
        r"No module named '?(?P<package>vllm|torch|torch_npu|transformers|mindie_turbo)'?\s*$|"
        r"Please install vllm\[(?P<extra>\w+)\]",
        Text("软件栈里缺少一个需要的包。", "The stack lacks a package that is needed."),
        (INSTALL,),
    ),
    Known(
        "no-metadata",
        r"No package metadata was found for vllm|InvalidVersion: ",
        Text("读不出 vLLM 的版本。", "The version of vLLM cannot be read."),
        (INSTALL, say("开发版请在环境里给出 VLLM_VERSION。", "For a development build give VLLM_VERSION.")),
    ),
    Known(
        "triton-target",
        r"Cannot find option named 'Ascend\w|Failed to compile BiShengLIR for device|Failed to run BiShengIR pipeline",
        Text(
            "triton-ascend 不认识这种芯片，或与 CANN 不配。",
            "triton-ascend does not know this chip, or does not go with CANN.",
        ),
        (
            NEWER,
            say(
                "换一个不用 Triton 的模型，或换 A2、A3 的服务器。",
                "Serve a model without Triton, or on a server with A2 or A3.",
            ),
        ),
    ),
    Known(
        "aicpu",
        r"AICPU execution.{0,200}open so failed|\bE39999\b",
        Text(
            "驱动、固件与 CANN 不配：AI CPU 的算子打不开。",
            "Driver, firmware and CANN do not go together: operators of the AI CPU cannot be opened.",
        ),
        (CHECK, INSTALL),
    ),
    Known(
        "start-environment",
        r"\[Init\]\[Env\]init env failed",
        Text(
            "CANN 无法初始化：缺少它所需的 Python 包，或环境没有读入。",
            "CANN cannot start: Python packages that it needs are missing, or its environment was not read.",
        ),
        (INSTALL, CHECK),
    ),
    Known(
        "ecc",
        r"multi-bit ECC|event_id: \[0x80E01809\]|event_id: \[0x80C98000\]",
        Text("NPU 的存储器有硬件错误。", "The memory of the NPU has a fault of hardware."),
        (OTHER_NPU, RESET),
    ),
    Known(
        "memory-copy",
        r"reason=\[sdma copy error\]|runtime result = 507013|virtual to dma physical failed",
        Text(
            "NPU 的内存复制失败：这个版本不支持这张卡，或卡有问题。",
            "A copy in the memory of the NPU failed: this release does not support the card, or the card is faulty.",
        ),
        (way("no_expandable", "关掉 expandable_segments。", "Switch expandable_segments off."), CHECK, NEWER),
    ),
    Known(
        "core-exception",
        r"Illegal instruction, which is usually caused by unaligned UUB|error code( is|:) ?507035|"
        r"vector core exception|"
        r"error code is 507011|fftsplus (aicore|aivector) error|error code is 507057|SUSPECT REMOTE ERROR",
        Text(
            "一个算子在 NPU 上出错：算子的缺陷，总在同一个 NPU 上时则是硬件。",
            "An operator failed on the NPU: a fault of the operator, or of the hardware where it is always the same "
            "NPU.",
        ),
        (EAGER, OTHER_NPU, NEWER),
        FOLLOWS,
    ),
    Known(
        "core-timeout",
        r"error code is 507014|reason=\[aicore timeout\]",
        Text("一个算子在 NPU 上超时。", "An operator on the NPU ran out of time."),
        (NO_AIV, NEWER),
        FOLLOWS,
    ),
    Known(
        "mask-310p",
        r"Free memory .{0,80}mask|attention mask .{0,120}out of memory",
        Text("310P 为整个上下文分配掩码，放不下。", "310P makes a mask for the whole context, which does not fit."),
        (way("context", "明确给出较短的上下文。", "Give a shorter context."), FLOAT16),
    ),
    Known(
        "locale",
        r"ascii'? codec can'?t (?:de|en)code",
        Text("环境没有 UTF-8，读不了中文。", "The environment has no UTF-8: Chinese text cannot be read."),
        (way("utf8", "给引擎设置 LC_ALL=C.UTF-8。", "Set LC_ALL=C.UTF-8 for the engine."),),
    ),
)
