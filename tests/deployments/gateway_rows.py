"""A gateway in rows, and what its server says of it and is told."""

import base64
import json
import zlib

import pytest
from django.utils import timezone

from deployments.agent import signing
from deployments.models import Deployment, Job, Order, Replica, Revision
from deployments.services import gateway_heard, gateways


@pytest.fixture
def deployment(db):
    made = Deployment.objects.create(name="qwen", api_key="engine-key")
    made.revision = Revision.objects.create(deployment=made, n=1, settings={"served_model_name": "qwen3"})
    made.save()
    return made


def replica(deployment, server, n, state="ready", **more):
    fields = {"address": "10.0.0.5", "port": 18000 + n, "path": "/m"} | more
    return Replica.objects.create(
        deployment=deployment, revision=deployment.revision, n=n, server=server, state=state, **fields
    )


@pytest.fixture
def gateway(deployment, server, operator, valkey):
    return gateways.make(deployment, server, by=operator, address="0.0.0.0")


def settled(gateway):
    """Its job has ended, and its keeper has told what it has."""
    Job.objects.filter(pk=gateway.job_id).update(state="succeeded", ended_at=timezone.now())
    return tell(gateway)


def tell(gateway, *, at=None, **more):
    gateway.refresh_from_db()
    said = {"gateway": gateway.pk, "instance": "ab" * 8, "version": gateway.wished, "state": "ready", "kept": True}
    gateway_heard.heard(gateway.server_id, [said | more], (at or timezone.now()).timestamp())
    gateway.refresh_from_db()
    return gateway


def sent_to(server):
    """The settings in the newest order to a server, as its agent opens them."""
    order = Order.objects.filter(server=server, do="gateway").order_by("-pk").first()
    if order is None:
        return None
    sealed = base64.b64decode(order.args["sealed"])
    return json.loads(zlib.decompress(signing.unseal(server.key, sealed)))
