"""What is said of servers and NPUs in placement: why here, why not there. Each sentence in both languages."""

from deployments.steps import Text

SHOWN = 4


def listed(names: list[str]) -> str:
    more = f" (+{len(names) - SHOWN})" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


# ---------- servers ----------

NOT_ALLOWED = Text("不在允许的服务器之列。", "It is not among the servers that may be used.")
LEAVING = Text("正在退役。", "It is being decommissioned.")
NEVER = Text("它的代理从未上报。", "Its agent has never written.")
QUARANTINE = Text("处于隔离状态：两台主机使用同一身份。", "It is in quarantine: two hosts use its identity.")
PAUSED = Text("队列已暂停。", "Its queue is paused.")
DRAINING = Text("正在排空。", "It is being drained.")
MAINTENANCE = Text("正在维护。", "It is in maintenance.")
UNREADABLE = Text("读不出它的 NPU：npu-smi 的最近一次读数无法理解。", "Its NPUs cannot be read: see its page.")
NO_NPU = Text("没有 NPU。", "It has no NPU.")
HAS_NPUS = Text("有 NPU：设备 cpu 只用于没有 NPU 的服务器。", "It has NPUs: the device cpu is for servers without.")
REAL = Text("是真实服务器，而模型只在模拟服务器上。", "It is real, and the model lies on simulated servers only.")
SIMULATED = Text("是模拟服务器，而模型是真实的。", "It is simulated, and the model is real.")
KUBERNETES = Text(
    "由 Kubernetes 管理：kubelet 与昇腾设备插件在其上运行。请先让该节点离开集群。",
    "Kubernetes holds it: kubelet runs there with the Ascend device plugin. Take the node out of the cluster first.",
)
NO_MODEL = Text(
    "模型不在其上：须先用作业“复制模型”（model_copy）或“下载模型”（download）放到该服务器。",
    "The model is not there: it must be copied first, by the job “model_copy” or “download”.",
)
MODEL_BROKEN = Text(
    "其上的模型副本不完整：须先用作业 model_copy 重新复制。",
    "The copy of the model there is not whole: it must be copied first, by the job “model_copy”.",
)
NO_STACK = Text(
    "其上没有在用的软件栈：须先用作业“安装”（install）装一个，或由它采用已自行安装的 vLLM。",
    "No stack is in use there: the job “install” brings one, or adopts a vLLM that was installed by hand.",
)


def silent(seconds: float) -> Text:
    return Text(f"已 {seconds:.0f} 秒没有上报。", f"It has been silent for {seconds:.0f} s.")


def wrong_stack(name: str, device: str) -> Text:
    return Text(
        f"使用中的软件栈 {name} 不适用于 {device}。须先用作业“安装”（install）。",
        f"The stack in use, {name}, is not for {device}. The job “install” brings another.",
    )


def no_runtime(route: str) -> Text:
    return Text(f"没有 {route}。", f"There is no {route} on it.")


def few(free: int, every: int, needed: int) -> Text:
    wanted = "1 is" if needed == 1 else f"{needed} are"
    if free == 0:
        return Text(
            f"{every} 个 NPU 都不空闲，需要 {needed} 个。", f"None of its {every} NPUs is free, and {wanted} needed."
        )
    return Text(
        f"{every} 个 NPU 中只有 {free} 个空闲，需要 {needed} 个。",
        f"Only {free} of its {every} NPUs {'is' if free == 1 else 'are'} free, and {wanted} needed.",
    )


def unlike(free: int, needed: int) -> Text:
    return Text(
        f"空闲的 {free} 个 NPU 型号不一，同一型号的不足 {needed} 个。",
        f"The {free} free NPUs are of several kinds, and of no kind there are {needed}.",
    )


def little_memory(free_mb: float, needed_mb: float) -> Text:
    return Text(
        f"空闲内存只有 {free_mb / 1024:.1f} GiB，需要约 {needed_mb / 1024:.1f} GiB。",
        f"Only {free_mb / 1024:.1f} GiB of memory are free, and about {needed_mb / 1024:.1f} are needed.",
    )


def small(chip: str, has_mb: float, needed_mb: float) -> Text:
    return Text(
        f"{chip} 各有 {has_mb / 1024:.0f} GiB，这些设置每个约需 {needed_mb / 1024:.0f} GiB："
        "请增加张量并行、减小上下文，或先量化。",
        f"Its {chip} have {has_mb / 1024:.0f} GiB each, and with these settings each takes about "
        f"{needed_mb / 1024:.0f}: take more tensor parallel, a shorter context, or quantize first.",
    )


def elsewhere(since: str, chips: str, family: str) -> Text:
    return Text(
        f"vLLM-Ascend {since} 的列表里该模型只有 {chips}，没有 {family}。若您确知可以，请写入本站的模型目录。",
        f"The lists of vLLM-Ascend {since} name {chips} for the model, not {family}. Where you know better, write it "
        "into this site's catalogue of models.",
    )


def older(stack: str, since: str) -> Text:
    return Text(
        f"列有该模型的文档是 vLLM-Ascend {since} 的；{stack} 更旧，没有记录：请先试一张卡。",
        f"The lists that name the model are those of vLLM-Ascend {since}; of {stack}, which is older, nothing is "
        "written: try one NPU first.",
    )


def few_servers(there: int, needed: int, chip: str, stack: str) -> Text:
    like = " · ".join(filter(None, (chip, stack)))
    return Text(
        f"一个副本要 {needed} 台同样的服务器（{like}），只有 {there} 台合适。",
        f"One replica takes {needed} servers that are alike ({like}), and {there} would do.",
    )


# ---------- NPUs ----------

NO_NAME = Text("没有总线号，无法为其命名", "has no bus id to name it by")
NOT_SHOWN = Text("不在最近一次读数中", "is not in the newest reading")
NPU_UNREADABLE = Text("无法读出", "cannot be read")
POD = Text("被 Kubernetes 的容器使用", "is used by a pod of Kubernetes")


def cordoned(reason: str) -> Text:
    return Text(f"已封锁（{reason}）", f"is cordoned ({reason})")


def held_by(holder: Text) -> Text:
    return Text(f"已留给{holder.zh}", f"is kept for {holder.en}")


def locked(job: int, kind: Text) -> Text:
    return Text(f"被作业 #{job}（{kind.zh}）占用", f"is held by job #{job} ({kind.en})")


def foreign(who: str) -> Text:
    return Text(f"有外部进程（{who}）", f"has a foreign process ({who})")


def of_job(who: str) -> Text:
    return Text(f"有本控制台的进程（{who}）", f"has a process of ours ({who})")


def unexplained(used_mb: float, idle_mb: int) -> Text:
    return Text(
        f"内存已用 {used_mb:.0f} MB，高于空闲水平 {idle_mb} MB，却没有列出进程",
        f"has {used_mb:.0f} MB in use, above the idle level of {idle_mb}, without a process that is listed",
    )


def sick(health: str, codes: tuple[str, ...]) -> Text:
    more = f" {', '.join(codes)}" if codes else ""
    return Text(f"健康状态为 {health}{more}", f"has the health {health}{more}")


def these(names: list[str], why: Text) -> Text:
    """One sentence for the NPUs that share a reason."""
    shown = listed(names)
    return Text(f"{shown}：{why.zh}。", f"{shown} {why.en}." if len(names) == 1 else f"{shown}: each {why.en}.")


# ---------- why here ----------


def free(free_: int, every: int) -> Text:
    return Text(f"{every} 个 NPU 中有 {free_} 个空闲。", f"{free_} of its {every} NPUs are free.")


def one_group(left: int) -> Text:
    if not left:
        return Text("所选 NPU 正好用满一个 HCCS 组的空位。", "The NPUs chosen fill what is free of one HCCS group.")
    return Text(
        f"所选 NPU 在同一个 HCCS 组内，组内还剩 {left} 个空闲。",
        f"The NPUs chosen are in one HCCS group, where {left} stay free.",
    )


def many_groups(count: int) -> Text:
    return Text(
        f"所选 NPU 跨 {count} 个 HCCS 组：没有一组有足够的空位，通信会较慢。",
        f"The NPUs chosen lie in {count} HCCS groups, for none has room enough: they will exchange more slowly.",
    )


UNKNOWN_LINKS = Text("不知道其 NPU 之间如何相连。", "How its NPUs are linked is not known.")


def same_cpus(cpus: str) -> Text:
    return Text(f"它们靠近同一组 CPU（{cpus}）。", f"They are next to the same CPUs ({cpus}).")


def accepted(name: str, codes: tuple[str, ...]) -> Text:
    shown = ", ".join(codes)
    return Text(
        f"{name} 有故障 {shown}，站点允许单机副本使用它。",
        f"{name} has the fault {shown}, which the site accepts for replicas inside one server.",
    )


def model_there(path: str) -> Text:
    return Text(f"模型已在其上：{path}。", f"The model is there: {path}.")


def stack_there(name: str) -> Text:
    return Text(f"软件栈 {name} 已在使用。", f"The stack {name} is in use.")


def memory(free_mb: float, needed_mb: float, cores: float | None) -> Text:
    more_zh = f"，{cores:.0f} 个核" if cores else ""
    more_en = f", {cores:.0f} cores" if cores else ""
    return Text(
        f"空闲内存 {free_mb / 1024:.1f} GiB，需要约 {needed_mb / 1024:.1f} GiB{more_zh}。",
        f"{free_mb / 1024:.1f} GiB of memory are free, about {needed_mb / 1024:.1f} needed{more_en}.",
    )


UNKNOWN_MEMORY = Text("不知道它有多少空闲内存。", "How much of its memory is free is not known.")


def together_with(names: list[str]) -> Text:
    shown = listed(names)
    return Text(f"与 {shown} 一起组成一个副本。", f"It makes one replica together with {shown}.")


def others(on_server: int, in_rack: int, rack: str) -> Text | None:
    """How many other replicas are near."""
    if on_server:
        return Text(f"其上已有该部署的 {on_server} 个副本。", f"{on_server} of its replicas are there already.")
    if rack and in_rack:
        return Text(f"机架 {rack} 已有该部署的 {in_rack} 个副本。", f"{in_rack} of its replicas are in rack {rack}.")
    if rack:
        return Text(f"机架 {rack} 还没有该部署的副本。", f"None of its replicas is in rack {rack} yet.")
    return None
