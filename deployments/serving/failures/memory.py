"""Memory of NPUs and hosts, graphs and the buffers of links."""

from deployments.serving.failures import (
    DECODE_ONLY,
    EAGER,
    FEWER,
    FEWER_GRAPHS,
    FOLLOWS,
    LESS_SHARE,
    MORE_NPUS,
    MORE_SHARE,
    OTHER_NPU,
    QUANTIZED,
    SHORTER,
    SMALLER_BATCH,
    Known,
    say,
    way,
)  # fmt: skip
from deployments.steps import Text

BUFFER = way("hccl_buffer", "加大 HCCL_BUFFSIZE。", "Give HCCL_BUFFSIZE more.")
LESS_BUFFER = way("hccl_buffer_down", "减小 HCCL_BUFFSIZE。", "Give HCCL_BUFFSIZE less.")
CACHE = way("cpu_cache", "调整 CPU 上的 KV 缓存。", "Give the KV cache on the CPU another size.")

TABLE = (
    Known(
        "kv-negative",
        r"Available KV cache memory: (?P<available>-\d[\d.]*) GiB",
        Text(
            "权重放满了 NPU：KV 缓存还差 {available} GiB。",
            "The weights fill the NPU: for the KV cache {available} GiB are left.",
        ),
        (MORE_NPUS, MORE_SHARE, QUANTIZED, SHORTER, FEWER),
    ),
    Known(
        "context-estimate",
        r"estimated maximum model length is (?P<longest>\d+)",
        Text(
            "KV 缓存放不下一个满长的请求；放得下的最长约为 {longest} 个词元。",
            "The KV cache does not hold one request of the whole context; the longest that it holds is about "
            "{longest} tokens.",
        ),
        (SHORTER, MORE_SHARE, MORE_NPUS),
    ),
    Known(
        "context-cache",
        r"max seq len \((?P<context>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache "
        r"\((?P<longest>\d+)\)",
        Text(
            "上下文 {context} 超过 KV 缓存的 {longest} 个词元。",
            "The context of {context} is more than the {longest} tokens that the KV cache holds.",
        ),
        (SHORTER, MORE_SHARE, MORE_NPUS),
    ),
    Known(
        "context-cache-gib",
        r"(?P<needed>[\d.]{1,20}) GiB KV cache is needed, which is larger than the available KV cache memory "
        r"\((?P<available>-?[\d.]{1,20}) GiB\)",
        Text(
            "一个满长的请求需要 {needed} GiB 的 KV 缓存，而只有 {available} GiB。",
            "One request of the whole context needs {needed} GiB of KV cache, and {available} GiB are there.",
        ),
        (SHORTER, MORE_SHARE, MORE_NPUS),
    ),
    Known(
        "share-not-free",
        r"Free memory on device .{0,60}\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).{0,80}less than desired",
        Text(
            "NPU 上只空着 {free} GiB（共 {total} GiB），少于所要的比例：别的进程占着其余的。",
            "Only {free} of {total} GiB are free on the NPU, less than the share that is wanted: other processes hold "
            "the rest.",
        ),
        (OTHER_NPU, LESS_SHARE, MORE_NPUS),
    ),
    Known(
        "no-cache-blocks",
        r"No available memory for the cache blocks",
        Text(
            "权重和运行所需之外，没有留下放 KV 缓存的空间；也可能是别的进程占着这个 NPU。",
            "Beside weights and what the engine needs, nothing is left for the KV cache; or another process holds "
            "memory of the NPU.",
        ),
        (MORE_SHARE, MORE_NPUS, SHORTER, OTHER_NPU, QUANTIZED),
    ),
    Known(
        "oom-foreign",
        r"NPU out of memory\. Tried to allocate [\d.]+ [KMG]iB \(NPU \d+; (?P<total>[\d.]+) GiB total capacity; "
        r"(?P<ours>1?\d\.\d+) GiB already allocated;(?:.{0,90};)? (?P<free>\d+\.\d+) MiB free",
        Text(
            "NPU 满了，而本引擎只用了 {ours} GiB（共 {total} GiB）：其余的被别的进程占着。",
            "The NPU is full although this engine uses {ours} of {total} GiB: another process holds the rest.",
        ),
        (OTHER_NPU, LESS_SHARE),
    ),
    Known(
        "oom",
        r"NPU out of memory\. Tried to allocate (?P<wanted>[\d.]+ [KMG]iB)",
        Text("NPU 显存不足：还要 {wanted}，已经没有了。", "The NPU ran out of memory: {wanted} more were wanted."),
        (LESS_SHARE, SMALLER_BATCH, SHORTER, FEWER, FEWER_GRAPHS, MORE_NPUS),
    ),
    Known(
        "oom-driver",
        r"reason=\[(driver error:out of memory|module new memory error)\]|\bEL0004\b|\b207001\b|"
        r"\[devmm_ioctl_\w+ \d+\]<errno:12",
        Text("NPU 显存不足：驱动无法再分配。", "The NPU ran out of memory: its driver could give no more."),
        (OTHER_NPU, LESS_SHARE, SHORTER, FEWER, MORE_NPUS),
    ),
    Known(
        "links-memory",
        r"\bEI0007\b.{0,300}Failed to allocate resource|Allocation_Failure\(EI0007\)",
        Text(
            "权重和 KV 缓存之后，NPU 上没有留下放通信资源的空间。",
            "Beside weights and KV cache, the NPU has no memory left for its links.",
        ),
        (LESS_SHARE, LESS_BUFFER, SMALLER_BATCH, MORE_NPUS),
    ),
    Known(
        "hccl-buffer",
        r"HCCL_BUFFSIZE\w* is too SMALL.{0,600}?=\s*(?P<needed>\d+)\s*MB, HCCL_BUFFSIZE\s*=\s*(?P<has>\d+)\s*MB",
        Text(
            "HCCL_BUFFSIZE 是 {has} MB，专家并行需要 {needed} MB。",
            "HCCL_BUFFSIZE is {has} MB, and expert parallel needs {needed} MB.",
        ),
        (BUFFER, SMALLER_BATCH, FEWER),
    ),
    Known(
        "hccl-buffer-some",
        r"HCCL_BUFFSIZE\w* is too SMALL",
        Text("HCCL_BUFFSIZE 对专家并行来说太小。", "HCCL_BUFFSIZE is too small for expert parallel."),
        (BUFFER, SMALLER_BATCH, FEWER),
    ),
    Known(
        "graph-streams",
        r"ACLgraph has insufficient available streams|stream resources are insufficient|\b207008\b|"
        r"New capture stream failed|runtime result = 207005|driver error:resource alloc fail",
        Text("捕获图用完了 NPU 的流。", "Capturing graphs used up the streams of the NPU."),
        (FEWER_GRAPHS, DECODE_ONLY, EAGER),
    ),
    Known(
        "mte-range",
        r"DDR address of the MTE instruction is out of range",
        Text(
            "算子读写越界；用专家并行时常因 HCCL_BUFFSIZE 太小。",
            "An operator left its memory; with expert parallel mostly because HCCL_BUFFSIZE is too small.",
        ),
        (BUFFER, EAGER),
    ),
    Known(
        "host-memory",
        r"DefaultCPUAllocator: can't allocate|\[Errno 12\]|Cannot allocate memory|std::bad_alloc",
        Text("主机内存不足。", "The host ran out of memory."),
        (CACHE, say("释放主机内存，或换更小的模型。", "Free memory of the host, or serve a smaller model.")),
    ),
    Known(
        "cpu-cache",
        r"Available (?P<available>[\d.]+) GiB memory.{0,60}is less than.{0,60}|Not enough memory to reserve.{0,40}KV|"
        r"VLLM_CPU_KVCACHE_SPACE.{0,80}(too (large|small|big)|exceed|larger than|not enough)",
        Text(
            "CPU 上的 KV 缓存（VLLM_CPU_KVCACHE_SPACE）与可用内存不合。",
            "The KV cache on the CPU (VLLM_CPU_KVCACHE_SPACE) does not go with the memory that is free.",
        ),
        (CACHE, SHORTER),
    ),
    Known(
        "shared-sleep",
        r"fftsplus sdma error, sdma channel is",
        Text(
            "两个引擎共用一个 NPU，其中一个用了睡眠模式。",
            "Two engines share an NPU, and one of them was started with sleep mode.",
        ),
        (OTHER_NPU,),
    ),
    Known(
        "preempted",
        r"is preempted by PreemptionMode|Sequence group \S+ is preempted|"
        r"preempted .{0,40}because there is not enough KV",
        Text(
            "负载高时 KV 缓存满了，请求被抢占，每个词元的时间会跳高。",
            "Under load the KV cache is full and requests are preempted: the time for each token jumps.",
        ),
        (FEWER, MORE_SHARE, SHORTER, MORE_NPUS),
        FOLLOWS,
    ),
    Known(
        "open-files",
        r"^(?!.*errors like).*\[Errno 24\] Too many open files",
        Text("打开的文件太多：限额太低。", "Too many files are open: the limit is too low."),
        (say("把服务的 LimitNOFILE 调到 65535，再启动。", "Raise its LimitNOFILE to 65535, then start it."),),
    ),
    Known(
        "disk-full",
        r"\[Errno 28\] No space left on device",
        Text("磁盘满了。", "The disk is full."),
        (
            say(
                "在服务器上清出空间（清理作业），再启动。",
                "Free some space (job cleanup), then start it.",
            ),
        ),
    ),
)
