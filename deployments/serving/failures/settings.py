"""What the command or the model's own limits forbid."""

from deployments.serving.failures import EAGER, FLOAT16, FOLLOWS, INSTALL, QUANTIZED, Known, job, say, way
from deployments.steps import Text

DIVIDING = way("tp_divides", "用一个能整除注意力头数的张量并行。", "Let tensor parallel divide the heads.")
MODEL_FILES = job("download", "重新下载模型。", "Download the model again.")
SCAN = job("model_scan", "在服务器上重新查找模型。", "Look for models on the server again.")
REQUANTIZE = say("用与 vLLM-Ascend 相配的 msModelSlim 重新量化。",
                 "Quantize it again with the msModelSlim that goes with vLLM-Ascend.")  # fmt: skip

TABLE = (
    Known(
        "flag-choice-ascend",
        r"argument --quantization\S*: invalid choice: 'ascend'|Unknown quantization method: ascend|"
        r"There is no available ascend quantizer",
        Text(
            "这个 vLLM 不认识 ascend 量化：没有 vLLM-Ascend，或版本太旧。",
            "This vLLM does not know the quantization ascend: vLLM-Ascend is missing or too old.",
        ),
        (
            way(
                "no_quantization",
                "不给出 --quantization，由模型自己的配置决定。",
                "Give no --quantization: the model's own configuration decides.",
            ),
            INSTALL,
        ),
    ),
    Known(
        "flag-unknown",
        r"error: unrecognized arguments: (?P<flags>--[^\r\n]{1,200})",
        Text("这个版本的 vLLM 没有参数 {flags}。", "This version of vLLM has no argument {flags}."),
        (way("no_flag", "去掉这个参数。", "Leave it out."),),
    ),
    Known(
        "flag-value",
        r"error: argument (?P<flag>--[\w-]+)\S*: (?P<wrong>invalid [^\r\n]{1,160}|expected [^\r\n]{1,80})",
        Text("参数 {flag} 的值不对：{wrong}", "The value of {flag} is wrong: {wrong}"),
        (way("no_flag", "去掉这个参数，用默认值。", "Leave it out, and take the default."),),
    ),
    Known(
        "context-model",
        r"max_model_len \((?P<context>\d+)\) is greater than the derived max_model_len "
        r"\(\w+=(?P<longest>\d+)",
        Text("上下文 {context} 超过模型本身的 {longest}。", "The context {context} is beyond the model's {longest}."),
        (way("context", "把上下文减到模型的上限。", "Shorten the context to what the model takes."),),
    ),
    Known(
        "heads",
        r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<tp>\d+)\)",
        Text("{heads} 个注意力头不能被 {tp} 整除。", "{heads} attention heads cannot be divided by {tp}."),
        (DIVIDING,),
    ),
    Known(
        "mla-heads",
        r"numHeads / numKvHeads = (?P<each>\d+), MLA only support \{(?P<may>[\d, ]+)\}",
        Text(
            "每个 NPU 上有 {each} 个头，而 MLA 的图模式只支持 {may}。",
            "Each NPU has {each} heads, and MLA in graph mode takes {may} only.",
        ),
        (
            way(
                "tp_mla",
                "换一个张量并行，使每个 NPU 有 32、64 或 128 个头。",
                "Take a tensor parallel size by which each NPU has 32, 64 or 128 heads.",
            ),
            EAGER,
        ),
    ),
    Known(
        "batched-tokens",
        r"max_num_batched_tokens \((?P<batch>\d+)\) is smaller than max_model_len \((?P<context>\d+)\)",
        Text(
            "每步 {batch} 个词元少于上下文 {context}，而分块预填充是关的。",
            "A step of {batch} tokens is less than the context of {context}, and chunked prefill is off.",
        ),
        (way("batch_up", "把它加大到上下文的长度。", "Raise it to the length of the context."),),
    ),
    Known(
        "devices-few",
        r"World size \((?P<world>\d+)\) is larger than the number of available|"
        r"Not enough memory (policy )?nodes|not enough (NUMA|numa) nodes|allowed NUMA nodes|"
        r"number of required GPUs exceeds the total number of available|"
        r"tensor parallel size.{0,60}(exceeds|larger than).{0,60}(NUMA|devices|nodes)",
        Text("设备比并行的份数少。", "There are fewer devices than parallel parts."),
        (way("tp_one", "减小并行的份数。", "Take fewer parallel parts."),),
    ),
    Known(
        "bfloat16",
        r"not implemented for DT_BFLOAT16|dtype or format is not supported, get io input info is .{0,80}DT_BFLOAT16|"
        r"Bfloat16 is only supported on",
        Text("这种芯片没有 bfloat16。", "This chip has no bfloat16."),
        (FLOAT16,),
    ),
    Known(
        "float16-scale",
        r"scale not implemented for DT_FLOAT16",
        Text("910B 上 W8A8 模型的比例只能是 bfloat16。", "On 910B the scales of a W8A8 model must be bfloat16."),
        (way("bfloat16", "用 bfloat16。", "Take bfloat16."),),
    ),
    Known(
        "nz-format",
        r"CheckIniMatch Failed! Supported Combs",
        Text(
            "算子不支持这种数据类型的组合；310 系列要 float16。",
            "An operator does not take these data types; chips of the 310 series need float16.",
        ),
        (FLOAT16,),
    ),
    Known(
        "fp8-cache",
        r"ReshapeAndCacheOperation setup failed",
        Text("KV 缓存的数据类型不受支持（fp8）。", "The data type of the KV cache is not supported (fp8)."),
        (way("no_flag:--kv-cache-dtype", "去掉 --kv-cache-dtype。", "Leave --kv-cache-dtype out."),),
    ),
    Known(
        "sleep-mode",
        r"camem allocator is not available",
        Text(
            "要用睡眠模式，而 vLLM-Ascend 没有编译好的扩展。",
            "Sleep mode was asked for, and vLLM-Ascend lacks its compiled extension.",
        ),
        (way("no_flag:--enable-sleep-mode", "去掉 --enable-sleep-mode。", "Leave --enable-sleep-mode out."), INSTALL),
    ),
    Known(
        "remote-code",
        r"trust_remote_code=True|contains custom code which must be executed|using the --trust-remote-code flag|"
        r"Could not locate (the )?configuration_\w+\.py",
        Text(
            "模型带有自己的代码，需要你信任它；或这些文件没有一起复制。",
            "The model brings code of its own, which needs your trust; or those files were not copied.",
        ),
        (
            way(
                "trust",
                "看过模型目录里的代码之后，执行它自带的代码。",
                "After reading the code in the model's folder, run it.",
            ),
            MODEL_FILES,
        ),
    ),
    Known(
        "port",
        r"\[Errno 98\].{0,80}([Aa]ddress already in use|bind on address)|"
        r"error while attempting to bind on address \('[^']*', (?P<port>\d+)\)",
        Text(
            "端口被别的程序占着，常常是还没有退出的前一个引擎。",
            "Another program holds the port, often the engine before that has not left yet.",
        ),
        (
            way("port", "让控制台另选一个端口。", "Let the console choose another port."),
            say(
                "看是谁占着它（ss -ltnp）；前一个引擎退出之后再启动。",
                "See who holds it (ss -ltnp); start again when the engine before has left.",
            ),
        ),
    ),
    Known(
        "address",
        r"\[Errno 99\]|[Cc]annot assign requested address",
        Text("服务器没有这个地址。", "The server does not have this address."),
        (
            say(
                "检查服务器的业务地址（服务器页面），再启动。",
                "See the server's address on its page, then start it.",
            ),
        ),
    ),
    Known(
        "model-missing",
        r"HFValidationError: |Repo id must be in the form|LocalEntryNotFoundError|"
        r"Cannot find an appropriate cached snapshot folder|is not a local folder and is not a valid model identifier",
        Text("服务器上没有这个目录里的模型。", "The model is not in that folder on the server."),
        (SCAN, MODEL_FILES),
    ),
    Known(
        "config-missing",
        r"Invalid repository ID or local directory specified|does not appear to have a file named config\.json",
        Text("模型目录里没有 config.json。", "The model's folder has no config.json."),
        (MODEL_FILES,),
    ),
    Known(
        "weights",
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader|Cannot find any model weights|"
        r"no file named .{0,20}safetensors|Error while deserializing header",
        Text("模型的权重文件缺失或损坏。", "Weight files of the model are missing or damaged."),
        (MODEL_FILES, SCAN),
    ),
    Known(
        "tokenizer",
        r"Can't load tokenizer|Tokenizer class \S+ does not exist|data did not match any variant of untagged enum|"
        r"Failed to load the tokenizer|safe_get_tokenizer_from_pretrained failed",
        Text(
            "分词器无法读取：文件缺失，或需要更新的软件。",
            "The tokenizer cannot be read: files are missing, or it needs newer software.",
        ),
        (MODEL_FILES, INSTALL),
    ),
    Known(
        "rights",
        r"PermissionError: \[Errno 13\]|Check Other group permission failed",
        Text("引擎没有权限读取一个文件。", "The engine may not read a file."),
        (
            say(
                "让运行引擎的用户能读模型目录（chmod -R u+rX,g+rX）。",
                "Give the engine's user the right to read the model's folder (chmod -R u+rX,g+rX).",
            ),
        ),
    ),
    Known(
        "architecture",
        r"Transformers does not recognize this architecture|architectures .{0,200} (are|is) not supported|"
        r"unsupported model type: \w+|Cannot find model module",
        Text("这个软件栈的软件还不认识该模型的结构。", "This stack does not know the model's architecture."),
        (INSTALL, say("换一个受支持的模型。", "Serve a model that is supported.")),
    ),
    Known(
        "foreign-quant",
        r"is_layer_skipped_ascend\(prefix|KeyError: '?visual\.",
        Text(
            "权重是用别的工具量化的（FP8、AWQ、GPTQ），Ascend 的量化读不了。",
            "The weights were quantized by another tool (FP8, AWQ, GPTQ), which Ascend's quantization cannot read.",
        ),
        (
            QUANTIZED,
            say("用原始权重，由 msModelSlim 量化。", "Take the original weights, and quantize them with msModelSlim."),
        ),
    ),
    Known(
        "quant-description",
        r"KeyError: ?\W{0,3}(model\.layers\.\d+\.|lm_head\.weight|.{0,60}deq_scale)|"
        r"Unsupported Linear modelslim scheme|weight_scale not found in params_dict|"
        r"ModelSlim Quantization Config Not Found",
        Text(
            "量化描述与模型的层对不上：工具与 vLLM-Ascend 的版本不配，或文件不全。",
            "The description of the quantization does not fit the model's layers: tool and vLLM-Ascend are of "
            "releases that do not go together, or a file is missing.",
        ),
        (REQUANTIZE, INSTALL),
    ),
    Known(
        "group-size",
        r"antiquantGroupSize should be (?P<may>[\d or]+)",
        Text("量化的组大小须为 {may}。", "The group size of the quantization must be {may}."),
        (REQUANTIZE,),
    ),
    Known(
        "config-value",
        r"validation errors? for (?P<config>\w+Config)\b",
        Text(
            "vLLM 不接受设置里的一个值（{config}），下一行写着原因。",
            "vLLM does not take a value of the settings ({config}); the next line says why.",
        ),
        (say("按日志里的那一行改正设置。", "Correct the setting that the log names."),),
        FOLLOWS,
    ),
    Known(
        "spec-tokens",
        r"num_speculative_tokens.{0,80}(exceed|must|invalid)|speculative.{0,60}not supported",
        Text("投机解码的设置不受支持。", "The settings of speculative decoding are not supported."),
        (way("no_speculation", "关掉投机解码。", "Switch speculative decoding off."),),
    ),
)
