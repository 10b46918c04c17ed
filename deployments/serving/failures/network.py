"""Links between NPUs and servers. Who waits for another in vain has mostly not failed itself: such lines come last."""

from deployments.serving.failures import CHECK, FOLLOWS, LESS_SHARE, OTHER_NPU, Known, say, way
from deployments.steps import Text

PORTS = way("hccl_ports", "让 HCCL 自己选空闲的端口。", "Let HCCL choose free ports.")
EARLIER = say("先看其他节点和 rank 的日志里最早的错误。", "Look for the earliest error of all nodes and ranks first.")
SAME = say("各节点用同样的命令、模型和版本启动。", "Start all nodes with the same command, model and versions.")
TENSOR = way("tp_for_pp", "用张量并行代替流水并行。", "Take tensor parallel in place of pipeline parallel.")

TABLE = (
    Known(
        "rank-table",
        r"\bEI0003\b.{0,200}rankTablePath|\bEI0004\b|[Rr]ank table.{0,80}invalid|ranktable or rank is invalid",
        Text("rank table 不对；vLLM 不需要它。", "The rank table is wrong, and vLLM needs none."),
        (way("no_rank_table", "不设置 RANK_TABLE_FILE。", "Leave RANK_TABLE_FILE out."),),
    ),
    Known(
        "rank-argument",
        r"\bEI0003\b",
        Text(
            "集合通信的一个参数不对，这一行写着是哪个。",
            "An argument of a collective call is wrong; see the line.",
        ),
        (SAME, CHECK),
    ),
    Known(
        "ranks-differ",
        r"\bEI0005\b",
        Text(
            "各 rank 的集合通信参数不一致：命令或版本不同。",
            "Ranks called one another with different arguments: their commands or versions differ.",
        ),
        (SAME,),
    ),
    Known(
        "device-port",
        r"listen on ip\[\S+\] and specific port\[(?P<port>\d+)\] fail|\bEJ0003\b|Failed to bind the IP port|"
        r"rs_socket_listen_bind_listen\(\d+\) : bind fail",
        Text("HCCL 要用的端口被另一个作业占着。", "Another job holds a port that HCCL wants."),
        (PORTS, OTHER_NPU),
    ),
    Known(
        "link-down",
        r"ret\(-67\)|\bEJ0002\b",
        Text("NPU 的网口没有连通。", "A network port of an NPU is down."),
        (
            CHECK,
            say(
                "检查光模块、光纤与地址（hccn_tool -i N -link -g）。",
                "Look at optics, cable and address (hccn_tool -i N -link -g).",
            ),
        ),
    ),
    Known(
        "host-name",
        r"gethostbyname failed|Name or service not known.{0,80}(master|node|rank)",
        Text("节点的名字解析不了。", "The name of a node cannot be resolved."),
        (say("把各节点的名字和地址写进 /etc/hosts。", "Write names and addresses of all nodes into /etc/hosts."),),
    ),
    Known(
        "pipeline-310p",
        r"hcclCommInitRootInfoConfig\(.{0,160}error code is 1\b",
        Text("这种芯片之间建不起流水并行的通信。", "These chips make no communicator for pipeline parallel."),
        (TENSOR, CHECK),
    ),
    Known(
        "kv-transfer",
        r"ascend_direct_transport\.cpp:\d+\] Failed to connect|Mooncake transfer failed",
        Text(
            "KV 缓存传不过去：两端的 NPU 网络不通，或 CANN 太旧。",
            "The KV cache is not passed on: the NPUs of both ends do not reach each other, or CANN is too old.",
        ),
        (
            CHECK,
            say(
                "装 8.3.RC1 之后的 CANN，并设 use_ascend_direct。",
                "Install a CANN after 8.3.RC1, and set use_ascend_direct.",
            ),
        ),
    ),
    Known(
        "ray-resources",
        r"Waiting for creating a placement group of specs for (?:[3-9]\d|\d{3,}) seconds",
        Text(
            "Ray 的集群里没有这么多空闲的 NPU，或节点以别的地址加入。",
            "The Ray cluster has fewer free NPUs than are asked for, or nodes joined with another address.",
        ),
        (say("停掉占着它们的作业，或减小并行的份数。", "Stop what holds them, or take fewer parallel parts."),),
    ),
    Known(
        "peer-connect",
        r"\bEI0006\b|[Gg]etting socket times out|wait socket establish timeout|"
        r"[hH]cclCommInitRootInfo\w* fail|HcclAllocComResourceByTiling function|Fatal error in PMPI_Barrier",
        Text(
            "另一个 NPU 没有连上来：它没有启动、启动得晚、网络不通，或 TLS 设置不同。",
            "Another NPU did not connect: it was not started, or late, its network is down, or its TLS switch differs.",
        ),
        (EARLIER, CHECK, way("hccl_timeout", "把 HCCL_CONNECT_TIMEOUT 加长。", "Give HCCL_CONNECT_TIMEOUT more time.")),
        FOLLOWS,
    ),
    Known(
        "peer-silent",
        r"\bEI0002\b|507048|fftsplus task timeout|reason=\[fftsplus timeout\]|HCCL watchdog thread terminated|"
        r"c10d\] waitForInput: .{0,200}timed out|retrieving hcclUniqueId .{0,80}got error",
        Text("一个 rank 不再回应，其余的等到超时。", "One rank stopped answering, and the others waited in vain."),
        (EARLIER, CHECK, LESS_SHARE),
        FOLLOWS,
    ),
)
