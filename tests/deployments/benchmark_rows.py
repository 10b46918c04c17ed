"""A deployment with a replica, for tests of benchmarks, playground and remedies."""

from django.utils import timezone

from deployments.models import Deployment, Replica, Revision, Server
from tests.deployments.model_rows import artifact, place

STACKS = "/opt/ascend-console/stacks"


def server(name="kp-01", **fields):
    row, _new = Server.objects.get_or_create(
        name=name, defaults={"last_seen_at": timezone.now(), "facts": {"stacks_root": STACKS}, **fields}
    )
    return row


def replica(name="qwen", state="ready", settings=None, *, on=None, port=18003, npus=("0000:01:00.0",), engine=None):
    """A new deployment of that name with one replica."""
    on = on or server()
    model = artifact(f"model-{name}", summary={"max_position": 32768})
    place(model, on)
    data = {"served_model_name": f"{name}-chat", **(settings or {})}
    deployment = Deployment.objects.create(name=name, simulated=on.simulated)
    revision = Revision.objects.create(
        deployment=deployment, n=1, artifact=model, settings=data, fingerprint=model.fingerprint
    )
    deployment.revision = revision
    deployment.save()
    return Replica.objects.create(
        deployment=deployment, revision=revision, n=1, state=state, server=on, path=f"/data/models/model-{name}",
        address="127.0.0.1", port=port, npus=list(npus), engine=engine or {},
    )  # fmt: skip
