"""Plans for serving a model on NPUs of one kind: ranked ways that fit, and why the others do not.

Pure arithmetic, so that a page, REST and `manage.py plan` answer alike: model and wish in, plans out.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deployments.serving import limits, sizing
from deployments.serving.limits import Refusal
from deployments.serving.sizing import Engine, Memory
from deployments.serving.spec import Spec, quantized
from deployments.steps import Text

DEFAULT_CONTEXT = 16_384  # where nobody asks for one and the model takes more
SIZES = (1, 2, 4, 8, 16, 32, 64)
MOST_NODES = 8
STEP = 128  # a context is a whole number of blocks
GOALS: dict[str, Text] = {
    "fewest": Text("最少的 NPU", "Fewest NPUs"),
    "throughput": Text("最大吞吐", "Most throughput"),
    "context": Text("最长上下文", "Longest context"),
}
# Each doubling of tensor parallel costs some of the gain for talking; measured figures replace it in the benchmark.
TP_EFFICIENCY = 0.9


@dataclass(frozen=True)
class Wish:
    """`npus` of one server, `group` of one HCCS group (0: all), `servers` alike. None: the planner chooses."""

    family: str
    hbm_mb: float
    npus: int
    group: int = 0
    max_model_len: int | None = None
    concurrency: int | None = None
    dtype: str = "auto"
    utilization: float = sizing.UTILIZATION
    servers: int = 1


@dataclass(frozen=True)
class Plan:
    """`replicas` of this engine fit on the servers of the wish, each on `nodes` of them; `at_once` is how many requests
    of the whole context one of them holds."""

    goals: tuple[str, ...]
    engine: Engine
    memory: Memory
    max_model_len: int
    replicas: int
    at_once: float
    flags: tuple[str, ...]
    notes: tuple[Text, ...]
    nodes: int = 1  # servers of one replica

    @property
    def longest(self) -> int:
        """Tokens of the longest request that the cache holds."""
        return self.memory.tokens

    def longest_of(self, spec: Spec) -> int:
        """Tokens of the longest context that would fit: no longer than the model takes, whole blocks."""
        return min(self.longest, spec.max_position or self.longest) // STEP * STEP


@dataclass(frozen=True)
class Answer:
    plans: tuple[Plan, ...]
    refusals: tuple[Refusal, ...]


def make(spec: Spec, wish: Wish) -> Answer:
    """At most three plans, best known for one of GOALS each; none where every way is refused."""
    never = [*limits.of_chip(spec, wish.family, wish.dtype), *limits.of_context(spec, wish.max_model_len)]
    if any(one.code != "unsure" for one in never) or wish.npus < 1:
        return Answer((), tuple(never or [_no_npus()]))
    fitting, refusals = _tried(spec, wish, ((engine, 1) for engine in _ways(spec, wish)))
    for more in (_stages(spec, wish), _over_servers(spec, wish)):
        if not fitting:  # what crosses groups or servers is slower: only where nothing else goes
            fitting, others = _tried(spec, wish, more)
            refusals += others
    return Answer(_ranked(fitting, spec.max_position), (*never, *refusals))


def _tried(spec: Spec, wish: Wish, ways: Iterable[tuple[Engine, int]]) -> tuple[list[Plan], list[Refusal]]:
    """Of (engine, servers of one replica): what fits, and why the others do not."""
    fitting, refusals = [], []
    for engine, nodes in ways:
        wrong = limits.of_division(spec, engine, wish.group or wish.npus)
        if wrong is None:
            plan = _plan(spec, wish, engine, nodes)
            wrong = _too_small(spec, wish, plan)
            if wrong is None:
                fitting.append(plan)
        if wrong is not None:
            refusals.append(wrong)
    return fitting, refusals


def _no_npus() -> Refusal:
    return Refusal(
        "npus", Text("没有可用的 NPU。", "There is no free NPU."), Text("请换一台服务器。", "Choose another server.")
    )


def _ways(spec: Spec, wish: Wish) -> Iterator[Engine]:
    """Ways to divide the model over the NPUs of one server. Dense models take no data parallel: replicas do that."""
    base = _base(wish)
    for tp in SIZES:
        if tp > wish.npus:
            return
        yield dataclasses.replace(base, tp=tp)
        if spec.is_moe:
            for dp in SIZES[1:]:
                if tp * dp <= wish.npus:
                    yield dataclasses.replace(base, tp=tp, dp=dp, ep=True)


def _stages(spec: Spec, wish: Wish) -> Iterator[tuple[Engine, int]]:
    """Pipeline parallel within one server, over its groups."""
    tp = _widest(spec, wish)
    for pp in SIZES[1:]:
        if tp * pp <= wish.npus:
            yield dataclasses.replace(_base(wish), tp=tp, pp=pp), 1


def _over_servers(spec: Spec, wish: Wish) -> Iterator[tuple[Engine, int]]:
    """Each server whole: experts by data parallel, layers by pipeline parallel, tensor parallel within a group."""
    base, widest = _base(wish), _widest(spec, wish)
    for nodes in range(2, min(wish.servers, MOST_NODES) + 1):
        if spec.is_moe:
            for tp in (one for one in SIZES if one <= widest and one * 2 >= widest // 2):
                yield dataclasses.replace(base, tp=tp, dp=wish.npus // tp * nodes, ep=True), nodes
        yield dataclasses.replace(base, tp=widest, pp=wish.npus // widest * nodes), nodes


def _widest(spec: Spec, wish: Wish) -> int:
    """The most tensor parallel that one group and the heads allow."""
    group = wish.group or wish.npus
    return max((one for one in SIZES if one <= group and not spec.heads % one), default=1)


def _base(wish: Wish) -> Engine:
    return Engine(utilization=wish.utilization, max_num_seqs=min(256, wish.concurrency or 256))


def context(spec: Spec, wish: Wish) -> int:
    """The context to plan for."""
    return wish.max_model_len or min(DEFAULT_CONTEXT, spec.max_position or DEFAULT_CONTEXT)


def _plan(spec: Spec, wish: Wish, engine: Engine, nodes: int) -> Plan:
    found = sizing.memory(spec, wish.hbm_mb, engine)
    length = context(spec, wish)
    # Each data-parallel rank has a cache of its own, and takes requests of its own.
    at_once = sizing.concurrency(found, length) * engine.dp
    return Plan(
        goals=(),
        engine=engine,
        memory=found,
        max_model_len=length,
        replicas=wish.servers // nodes if nodes > 1 else wish.npus // engine.npus * wish.servers,
        at_once=at_once,
        flags=(*flags(spec, wish, engine, length), *_node_flags(engine, nodes)),
        notes=(*_notes(spec, wish, found), *_node_notes(nodes)),
        nodes=nodes,
    )


def _too_small(spec: Spec, wish: Wish, plan: Plan) -> Refusal | None:
    """Why the plan does not fit, and what would make it fit."""
    wanted = plan.max_model_len * (wish.concurrency or 1)
    if plan.memory.tokens * plan.engine.dp >= wanted and plan.memory.tokens >= plan.max_model_len:
        return None
    way, found = limits.words(plan.engine), plan.memory
    if found.kv <= 0:
        why = Text(
            f"每个 NPU 上权重要 {gib(found.weights)}，连同其余的一起超出 {gib(-found.kv)}。",
            f"The weights take {gib(found.weights)} of each NPU; with the rest that is {gib(-found.kv)} too much.",
        )
        return Refusal("weights", why, _would_fit(spec, wish), way)
    why = Text(
        f"缓存只有 {found.tokens:,} 个词元，需要 {wanted:,}。",
        f"The cache holds {found.tokens:,} tokens, and {wanted:,} are wanted.",
    )
    shorter = found.tokens * plan.engine.dp // (wish.concurrency or 1) // STEP * STEP
    more = _would_fit(spec, wish)
    if shorter >= STEP:
        more = Text(f"上下文不超过 {shorter:,}，或{more.zh}", f"A context of at most {shorter:,} fits. Or: {more.en}")
    return Refusal("cache", why, more, way)


def _would_fit(spec: Spec, wish: Wish) -> Text:
    """The smallest change of hardware or weights that makes room."""
    for tp in SIZES:
        engine = Engine(tp=tp, utilization=wish.utilization)
        if limits.of_division(spec, engine, tp) is None:
            found = sizing.memory(spec, wish.hbm_mb, engine)
            if found.tokens >= context(spec, wish) * (wish.concurrency or 1):
                if tp <= wish.npus and tp <= (wish.group or wish.npus):
                    return Text(f"用 {tp} 个 NPU。", f"Take {count(tp)}.")
                smaller = _quantized(spec, wish)
                more = Text(f"需要 {tp} 个这样的 NPU。", f"It takes {tp} such NPUs.")
                return Text(smaller.zh + more.zh, f"{smaller.en}{more.en}")
    smaller = _quantized(spec, wish)
    return smaller if smaller.en else Text("请换更小的模型。", "Take a smaller model.")


def _quantized(spec: Spec, wish: Wish) -> Text:
    """Whether quantized weights would fit here; '' where they would not, or are quantized already."""
    if spec.quant or spec.foreign_quant:
        return Text("", "")
    for quant in ("w8a8", "w4a8"):
        if quant not in limits.LOADS.get(wish.family, ()):
            continue
        smaller = quantized(spec, quant)
        for tp in SIZES:
            fits = tp <= wish.npus and limits.of_division(smaller, Engine(tp=tp), wish.group or wish.npus) is None
            if fits and sizing.memory(smaller, wish.hbm_mb, Engine(tp=tp)).tokens >= context(spec, wish):
                return Text(f"量化为 {quant} 后用 {tp} 个 NPU。", f"Quantized to {quant} it takes {count(tp)}. ")
    return Text("", "")


def _ranked(plans: list[Plan], most: int | None) -> tuple[Plan, ...]:
    """The best of each goal, in the order of GOALS; one that is best for several stands once. More cache than
    the `most` tokens that the model takes makes no context longer."""
    if not plans:
        return ()
    best = {
        "fewest": min(plans, key=lambda one: (one.engine.npus, -one.at_once)),
        "throughput": max(plans, key=lambda one: (_throughput(one), -one.engine.npus)),
        "context": max(plans, key=lambda one: (min(one.longest, most or one.longest), -one.engine.npus)),
    }
    goals: dict[Engine, tuple[str, ...]] = {}
    for goal, plan in best.items():
        goals[plan.engine] = (*goals.get(plan.engine, ()), goal)
    return tuple(dataclasses.replace(best[names[0]], goals=names) for names in goals.values())


def _throughput(plan: Plan) -> float:
    """What all replicas together may do at once, against each other: a guess for ranking, never shown as a speed."""
    doublings = plan.engine.tp.bit_length() - 1
    return plan.replicas * min(plan.at_once, plan.engine.max_num_seqs) * TP_EFFICIENCY**doublings


def flags(spec: Spec, wish: Wish, engine: Engine, length: int) -> tuple[str, ...]:
    """The words of `vllm serve` behind the model's path."""
    words = ["--tensor-parallel-size", str(engine.tp)]
    if engine.pp > 1:
        words += ["--pipeline-parallel-size", str(engine.pp)]
    if engine.dp > 1:
        words += ["--data-parallel-size", str(engine.dp)]
    if engine.ep:
        words.append("--enable-expert-parallel")
    words += ["--max-model-len", str(length), "--max-num-seqs", str(engine.max_num_seqs)]
    words += ["--gpu-memory-utilization", f"{engine.utilization:g}"]
    if wish.family in limits.NO_BF16:
        words += ["--dtype", "float16"]
    elif wish.dtype != "auto":
        words += ["--dtype", wish.dtype]
    if spec.quant:
        words += ["--quantization", "ascend"]
    return tuple(words)


def _node_flags(engine: Engine, nodes: int) -> tuple[str, ...]:
    """Those of the first server; the others have a rank of their own and --headless."""
    if nodes == 1:
        return ()
    if engine.dp > 1:
        return ("--data-parallel-size-local", str(engine.dp // nodes), "--data-parallel-address", "NODE-0")
    return ("--nnodes", str(nodes), "--node-rank", "0", "--master-addr", "NODE-0")


def _node_notes(nodes: int) -> Iterator[Text]:
    if nodes > 1:
        yield Text(
            f"一个副本用 {nodes} 台服务器：NPU 之间的网络（hccn）须先检查，路径与版本须相同。",
            f"One replica takes {nodes} servers: check the network between their NPUs (hccn) first; paths and versions "
            "must be the same.",
        )


def _notes(spec: Spec, wish: Wish, found: Memory) -> Iterator[Text]:
    if spec.remote_code:
        yield Text(
            "模型带有自己的代码：只有信任它时才加 --trust-remote-code。",
            "The model brings code of its own: add --trust-remote-code only where you trust it.",
        )
    if wish.family == "310P":
        yield Text("310P 上须明确给出 --max-model-len。", "On 310P --max-model-len must be given.")
    if 0 < found.kv < 2048:
        yield Text(
            "缓存很小：负载高时请求会被抢占。",
            "The cache is small: under load, requests are preempted.",
        )


def count(npus: int) -> str:
    return "1 NPU" if npus == 1 else f"{npus} NPUs"


def gib(mb: float) -> str:
    return f"{mb / 1024:.1f} GiB"
