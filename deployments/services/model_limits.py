"""What a model asks of chips and stacks, for placement: which families never take it, who lists it, how much memory."""

from deployments.artifacts.known import Known
from deployments.models import Artifact
from deployments.services import model_catalogue, revision_checks
from deployments.serving import limits, loaders, placing_words, sizing
from deployments.serving.placing_facts import Loads
from deployments.serving.setting_problems import engine
from deployments.serving.settings import Settings
from deployments.serving.spec import Spec, completed
from deployments.stacks.catalogue import Catalogue


def _spec(artifact: Artifact) -> Spec | None:
    spec, row = revision_checks.spec_of(artifact), model_catalogue.like(artifact.name)
    return completed(spec, row) if spec and row else spec


def least_hbm_mb(wanted: Settings, artifact: Artifact) -> float:
    """What each NPU must have, MiB as npu-smi prints it, for one request of the whole context; 0 where not known."""
    spec = _spec(artifact)
    if spec is None or wanted.device == "cpu":
        return 0.0
    return sizing.least_hbm_mb(spec, engine(wanted), wanted.max_model_len or spec.max_position or 0)


def loads(artifact: Artifact, dtype: str, catalogue: Catalogue) -> dict[str, Loads]:
    """By family of chips."""
    spec, row = _spec(artifact), model_catalogue.like(artifact.name)
    return {family: _loads(spec, row, family, dtype, catalogue) for family in catalogue.families}


def _loads(spec: Spec | None, row: Known | None, family: str, dtype: str, catalogue: Catalogue) -> Loads:
    found = loaders.of(row.support if row else None, family, catalogue.stacks.values())
    refused = limits.of_chip(spec, family, dtype) if spec else []
    never = [limits.sentence(one) for one in refused if one.code != "unsure"]
    if row and found.elsewhere:
        never.append(placing_words.elsewhere(found.since, ", ".join(row.support.chips), family))
    return Loads(tuple(never), found.since if found.stacks else "", frozenset(found.stacks))
