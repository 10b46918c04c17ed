"""What seeding.py writes of models."""


def models(server="kp-01", simulated="kp-sim"):
    """A family of models with hostile names, copies and an evaluation; {name: id}."""
    from deployments.models import Artifact, Server
    from tests.browser import seeding
    from tests.deployments.model_rows import MISSING, artifact, place

    Artifact.objects.all().delete()
    here, far = Server.objects.get(name=server), Server.objects.get(name=simulated)
    made = seeding.job(server, "model_scan", "succeeded")["job"]
    parent = artifact("Qwen2.5-7B-Instruct", via="downloaded", source="https://hub.example/Qwen/Qwen2.5-7B-Instruct",
                      made_by_id=made, digest="d" * 64, notes="From the mirror.\nLicence checked.")  # fmt: skip
    w8a8 = artifact("Qwen2.5-7B-Instruct-w8a8", parent=parent, via="quantized", format="quantized", made_by_id=made,
                    summary={"quant_type": "W8A8", "dtypes": {"I8": 7_000_000_000, "BF16": 1_500_000_000},
                             "remote_code": True, "pickles": ["training.bin"]},
                    gate={"passed": True, "job": made})  # fmt: skip
    w4 = artifact("Qwen2.5-7B-Instruct-w4a8", parent=parent, via="quantized", format="quantized", made_by_id=made,
                  gate={"passed": False, "job": made})  # fmt: skip
    odd = artifact("<b>千问</b>" + "长" * 190, parent=parent, via="converted", format="om", summary={"quant_type": ""})
    deep = w8a8
    for n in range(4):
        deep = artifact(f"again-{n}", parent=deep, via="converted", made_by_id=made)
    sim = artifact("Qwen3-8B", simulated=True)
    place(parent, here, job_id=made)
    place(w8a8, here)
    place(w4, here, problems=[MISSING, ["damaged", ["文件损坏。", "A file is damaged."], False]])
    place(odd, here, "/data/" + "very-long-folder-name-" * 9 + "x")
    for n in range(3):
        place(sim, far, f"/data/models/Qwen3-8B-{n}")
    return {"parent": parent.pk, "w8a8": w8a8.pk, "w4": w4.pk, "odd": odd.pk, "place": parent.places.get().pk,
            "half": w4.places.get().pk}  # fmt: skip


def model_told(server="kp-01", name="told-just-now"):
    """A job of that server tells of a model, and pages hear of it."""
    from django.db import transaction

    from deployments.models import Attempt
    from deployments.services import told
    from tests.browser import seeding
    from tests.deployments.model_rows import SUMMARY

    attempt = Attempt.objects.get(pk=seeding.job(server, "model_scan", "running")["attempt"])
    model = {**SUMMARY, "name": name, "fingerprint": f"{attempt.job_id:064x}", "format": "hf", "bytes": 5_000_000}
    with transaction.atomic():
        told.hand_over(attempt, "artifact", {"path": f"/data/{name}", "via": "found", "model": model})


def no_models():
    from deployments.models import Artifact

    Artifact.objects.all().delete()
