"""What remedies are worked out from: the settings that failed, the model, its chip, and what the log said."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deployments.serving import sizing
from deployments.serving.fields import Settings
from deployments.serving.spec import Spec
from deployments.steps import Text

STEP = 128  # a context is a whole number of blocks
BATCH = 2048  # of one step, by vLLM's default on devices below 70 GiB


@dataclass(frozen=True)
class Worked:
    change: dict[str, Any]
    numbers: tuple[Text, ...] = ()


@dataclass(frozen=True)
class Case:
    """`data` is the JSON of the settings, `settings` the same read. `spec` and `hbm_mb` are None where not known;
    `npus`: how many a replica may have on its server, 0 where not known. `kv_tokens` is what the engine printed."""

    data: Mapping[str, Any]
    settings: Settings
    spec: Spec | None = None
    hbm_mb: float | None = None
    npus: int = 0
    kv_tokens: int | None = None
    said: Mapping[str, str] = field(default_factory=dict)

    def saying(self, said: Mapping[str, str]) -> "Case":
        return dataclasses.replace(self, said={**self.said, **said})

    @property
    def on_cpu(self) -> bool:
        return self.settings.device == "cpu"

    @property
    def context(self) -> int | None:
        """Tokens of a request, as asked for or as the model has them; None where neither is known."""
        own = self.spec.max_position if self.spec else None
        return self.settings.max_model_len or self.whole("context") or own

    def whole(self, name: str) -> int | None:
        """A number that the line names."""
        text = self.said.get(name, "").strip()
        return int(text) if text.isdecimal() and len(text) < 16 else None

    def number(self, name: str) -> float | None:
        try:
            return float(self.said.get(name, ""))
        except ValueError:
            return None

    def engine(self, **more: Any) -> sizing.Engine:
        """As sizing counts it; `more` are its fields with other values."""
        s = self.settings
        own = sizing.Engine(
            tp=s.tensor_parallel_size, pp=s.pipeline_parallel_size, dp=s.data_parallel_size,
            ep=s.enable_expert_parallel, utilization=s.gpu_memory_utilization, max_num_seqs=s.max_num_seqs,
            max_batched_tokens=s.max_num_batched_tokens or BATCH, eager=s.enforce_eager,
        )  # fmt: skip
        return dataclasses.replace(own, **more)

    def memory(self, **more: Any) -> sizing.Memory | None:
        """Of one NPU; None where model or chip are not known."""
        if self.spec is None or not self.hbm_mb or self.on_cpu:
            return None
        return sizing.memory(self.spec, self.hbm_mb, self.engine(**more))

    def env(self, **more: str | None) -> dict[str, Any]:
        """The change that sets variables of the engine, or takes them away."""
        both = {**self.settings.env, **more}
        left = {name: value for name, value in both.items() if value is not None}
        return {"env": left or None}


def blocks(tokens: float) -> int:
    """Rounded down to whole blocks, where there is one at all."""
    whole = int(tokens)
    return whole // STEP * STEP if whole >= STEP else whole


def gib(mb: float) -> str:
    return f"{mb / 1024:.1f} GiB"
