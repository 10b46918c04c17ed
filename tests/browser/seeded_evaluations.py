"""Models and what was told of them, for `seeding`."""

import json


def evaluated(server="kp-01", child="q-w8a8", passed=True):
    """A model beside its parent, and what an evaluation of it has told: as simulated servers act it out."""
    from deployments.demo import acts_evaluate
    from deployments.models import Artifact, ArtifactPlace, Attempt, Server
    from deployments.services import told
    from tests.browser.seeding import job

    host, made = Server.objects.get(name=server), []
    for name, form in (("Qwen3-8B", "hf"), (child, "quantized")):
        known = {"name": name, "format": form, "parent": made[0] if made else None}
        row = Artifact.objects.update_or_create(fingerprint=name.encode().hex().ljust(64, "0"), defaults=known)[0]
        place = {"artifact": row, "bytes": 16_000_000_000}
        ArtifactPlace.objects.update_or_create(server=host, path=f"/data/models/{name}", defaults=place)
        made.append(row)
    paths = {"parent": "/data/models/Qwen3-8B", "child": f"/data/models/{child if passed else 'broken'}"}
    params = {**paths, "child": f"/data/models/{child}", "budget_pct": 2.0, "agreement_pct": 30.0}
    seeded = job(server, "evaluate", "succeeded", params=params)
    words = ["--stacks", "/opt/stacks", "--engine", "vllm", "--parent", paths["parent"], "--child", paths["child"]]
    for said in acts_evaluate.of(acts_evaluate.NAMES[1], words, {}):
        if isinstance(said, dict):
            told.hand_over(
                Attempt.objects.get(pk=seeded["attempt"]), said["told"], json.loads(json.dumps(said["data"]))
            )
    return {"artifact": made[1].pk, "job": seeded["job"]}
