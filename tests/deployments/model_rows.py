"""Rows of models for tests of pages and services."""

import hashlib

SUMMARY = {
    "architecture": "Qwen2ForCausalLM", "model_type": "qwen2", "dtype": "BF16", "quant_type": "",
    "parameters": 7_600_000_000, "layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "head_dim": 128,
    "kv_lora_rank": None,
    "qk_rope_head_dim": None, "vocab": 152064, "max_position": 32768, "experts": None, "shards": 4,
    "weight_bytes": 15_200_000_000, "files": 12, "tied": False, "remote_code": False, "tokenizer": True, "pickles": [],
    "dtypes": {"BF16": 15_200_000_000},
}  # fmt: skip
MISSING = ["missing_shard", ["缺少分片 a。", "The shard a is missing."], True]


def artifact(name="Qwen2.5-7B", **fields):
    from deployments.models import Artifact

    fingerprint = fields.pop("fingerprint", hashlib.sha256(f"{name}{Artifact.objects.count()}".encode()).hexdigest())
    summary = {**SUMMARY, **fields.pop("summary", {})}
    values = {"format": "hf", "bytes": 15_200_000_000, **fields}
    return Artifact.objects.create(name=name, fingerprint=fingerprint, summary=summary, **values)


def place(of, server, path=None, **fields):
    from deployments.models import ArtifactPlace

    path = path or f"/data/models/{of.name}"
    return ArtifactPlace.objects.create(artifact=of, server=server, path=path, bytes=of.bytes, **fields)
