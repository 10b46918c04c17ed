"""Holds and engines of others, for the browser."""

from datetime import timedelta


def held(server="kp-hold", team="vision", npus=2, hours=48):
    """`npus` NPUs of the server are on hold, and one engine of somebody else was found there."""
    from django.utils import timezone

    from console.models import User
    from deployments.models import ExternalEngine, Hold, Server
    from deployments.services import holds, reserved

    where = Server.objects.get(name=server)
    Hold.objects.filter(server=where).delete()
    made = holds.make(
        where, reserved.names_on(where)[:npus], team=team, reason="Acceptance of the new OCR model", ticket="OPS-2291",
        until=timezone.now() + timedelta(hours=hours), by=User.objects.filter(role="operator").first(),
    )  # fmt: skip
    ExternalEngine.objects.update_or_create(
        server=where, key="vllm:1",
        defaults={"kind": "vllm", "pid": 48112, "user": "wangfang", "image": "quay.io/ascend/vllm-ascend:v0.18.0",
                  "container": "qwen-serving", "model": "/data/models/Qwen3-32B-W8A8", "port": 8000, "health": "ok",
                  "npus": reserved.names_on(where)[2:4], "watched": True},
    )  # fmt: skip
    return made.pk


def none_held():
    from deployments.models import ExternalEngine, Hold

    Hold.objects.all().delete()
    ExternalEngine.objects.all().delete()
