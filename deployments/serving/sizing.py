"""The memory of one NPU while it serves: what goes where, MiB. The rules are those of vLLM-Ascend's documents and of
logs that real engines printed; each constant says which."""

from dataclasses import dataclass

from deployments.serving.spec import Spec, kv_bytes_per_token

VISIBLE = 60.96 / 64  # of the memory that npu-smi prints, torch sees so much (60.96 GiB of 65,536 MB)
BLOCK = 128  # tokens of one block of the cache on NPUs
GRAPHS_MB = 660  # the pool of captured graphs: 0.04–0.65 GiB were seen
HCCL_MB = 2 * 200  # each communicator takes twice HCCL_BUFFSIZE (200 MB by default)
RUNTIME_MB = 800  # context, operators and fragments that no pool counts
UTILIZATION = 0.9


@dataclass(frozen=True)
class Engine:
    """Settings that sizing depends on. `tp`, `pp` and `dp` are sizes; `ep` puts experts on all of tp × dp."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    utilization: float = UTILIZATION
    max_num_seqs: int = 256
    max_batched_tokens: int = 2048
    eager: bool = False

    @property
    def npus(self) -> int:
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class Memory:
    """Of one NPU, MiB; all parts together are `total`. `kv` below 0 is what is missing."""

    total: float
    invisible: float  # firmware and driver keep it
    reserve: float  # what `utilization` leaves alone
    weights: float
    activations: float
    graphs: float
    hccl: float
    runtime: float
    kv: float
    kv_bytes_per_token: float

    @property
    def tokens(self) -> int:
        """How many tokens the cache holds, whole blocks."""
        if self.kv <= 0 or self.kv_bytes_per_token <= 0:
            return 0
        return int(self.kv * 2**20 / self.kv_bytes_per_token) // BLOCK * BLOCK

    def parts(self) -> list[tuple[str, float]]:
        """(name, MiB) in the order of a stacked bar."""
        names = ("weights", "kv", "activations", "graphs", "hccl", "runtime", "reserve", "invisible")
        return [(name, max(0.0, getattr(self, name))) for name in names]


def memory(spec: Spec, hbm_mb: float, engine: Engine) -> Memory:
    """What one NPU of `hbm_mb` MiB holds."""
    visible = hbm_mb * VISIBLE
    budget = visible * engine.utilization
    weights = weights_mb(spec, engine)
    activations = activations_mb(spec, engine)
    graphs = 0.0 if engine.eager else float(GRAPHS_MB)
    hccl = float(HCCL_MB * _communicators(engine))
    kv = budget - weights - activations - graphs - hccl - RUNTIME_MB
    per_token = kv_bytes_per_token(spec, engine.tp, engine.pp)
    return Memory(
        hbm_mb, hbm_mb - visible, visible - budget, weights, activations, graphs, hccl, RUNTIME_MB, kv, per_token
    )


def least_hbm_mb(spec: Spec, engine: Engine, tokens: int) -> float:
    """The smallest NPU, MiB as npu-smi prints it, whose cache holds `tokens` beside all the rest."""
    none = memory(spec, 0.0, engine)  # of nothing, what is missing is all that the rest takes
    cache = -(-tokens // BLOCK) * BLOCK * none.kv_bytes_per_token / 2**20
    return (cache - none.kv) / (VISIBLE * engine.utilization)


def weights_mb(spec: Spec, engine: Engine) -> float:
    """Each NPU's share: tensor and pipeline divide all weights; with expert parallel the experts are divided among the
    data-parallel ranks as well, and the rest is not."""
    layers = -(-spec.layers // engine.pp) / spec.layers
    experts = spec.weight_mb * spec.expert_share
    rest = spec.weight_mb - experts
    spread = engine.tp * (engine.dp if engine.ep else 1)
    return layers * (rest / engine.tp + experts / spread)


def activations_mb(spec: Spec, engine: Engine) -> float:
    """The peak of one step: the batch's hidden states and the widest layer, and the logits of all sequences twice."""
    width = spec.intermediate or 4 * spec.hidden
    number = 4 if spec.dtype == "F32" else 2
    hidden = engine.max_batched_tokens * (6 * spec.hidden + 3 * width / engine.tp) * number
    logits = 2 * engine.max_num_seqs * spec.vocab * 4
    return (hidden + logits) / 2**20


def _communicators(engine: Engine) -> int:
    return (engine.tp > 1) + (engine.pp > 1) + (engine.dp > 1) + (engine.ep and engine.tp * engine.dp > 1)


def tokens_on_cpu(spec: Spec, gib: int, dtype: str) -> int:
    """How many tokens a cache of `gib` GiB holds on a machine without NPU; a number of it has the size of `dtype`."""
    size = 4 if dtype == "float32" else 2 if dtype in ("bfloat16", "float16") else 4 if spec.dtype == "F32" else 2
    one = spec.kv_lora_rank + spec.rope_dim if spec.is_mla else 2 * spec.kv_heads * spec.head_dim
    return gib * 2**30 // (spec.kv_layers * one * size) // BLOCK * BLOCK


def concurrency(found: Memory, tokens_each: int) -> float:
    """How many requests of that length the cache holds at once."""
    return found.tokens / tokens_each if tokens_each else 0.0
