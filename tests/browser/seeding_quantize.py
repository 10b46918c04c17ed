"""Rows of a model that can be quantized."""


def quantizable(server="kp-quant"):
    """A model on a server that has msModelSlim beside the stack in use; its id."""
    from deployments.models import Artifact, ArtifactPlace, Npu, Server

    row, stack = Server.objects.get(name=server), "/opt/ascend-console/stacks/vllm-ascend-0.23.0"
    packages = {"msmodelslim": "26.1.0", "torch": "2.10.0"}
    python = {"path": f"{stack}/msmodelslim/bin/python", "version": "3.11.9", "packages": packages}
    row.facts = {"arch": "aarch64", "stack_current": "vllm-ascend-0.23.0", "pythons": [python],
                 "stacks_root": "/opt/ascend-console/stacks"}  # fmt: skip
    row.save()
    for n in range(4):
        Npu.objects.update_or_create(
            server=row,
            device_index=n,
            defaults={"npu_id": n, "chip_id": 0, "bus_id": f"0000:8{n}:00.0", "memory_total_mb": 65536},
        )
    summary = {"weight_bytes": 15_200_000_000, "layers": 28, "vocab": 152064, "hidden": 3584, "dtype": "BF16"}
    made, _new = Artifact.objects.update_or_create(
        fingerprint="cd" * 32, defaults={"name": "Qwen2.5-7B-Instruct", "format": "hf", "summary": summary}
    )
    path = "/data/models/Qwen2.5-7B-Instruct"
    ArtifactPlace.objects.update_or_create(artifact=made, server=row, path=path)
    return made.pk


def servable(server="kp-wizard"):
    """The same with all figures that a plan needs, on named chips."""
    from deployments.models import Artifact, Npu, Server

    pk = quantizable(server)
    Npu.objects.filter(server=Server.objects.get(name=server)).update(name="910B3")
    more = {"heads": 28, "kv_heads": 4, "head_dim": 128, "max_position": 32_768, "quant_type": ""}
    row = Artifact.objects.get(pk=pk)
    row.summary = {**row.summary, **more}
    row.save()
    return pk
