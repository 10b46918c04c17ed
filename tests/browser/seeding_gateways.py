"""A deployment with a gateway, engines, and keys that were used, for pages in a browser."""

from datetime import timedelta

from django.utils import timezone


def gateway(name: str = "qwen3-32b") -> dict:
    from deployments.models import Deployment, Gateway, GatewayKey, KeyUsage, Revision, Server

    server = Server.objects.filter(simulated=False).order_by("pk").first()
    made = Deployment.objects.create(name=name, title="Qwen3 32B")
    made.revision = Revision.objects.create(deployment=made, n=1, settings={"served_model_name": name})
    made.save()
    rows = [{"address": "10.20.0.11", "port": 18000 + n, "replica": n} for n in range(2)]
    rows.append({"address": "10.20.0.40", "port": 8000, "external": 7})
    told = [{"url": f"http://10.20.0.11:{18000 + n}", "healthy": n == 0, "load": 12 * n} for n in range(2)]
    Gateway.objects.create(
        deployment=made, server=server, address="10.20.0.11", port=18200, router_port=18201, state="degraded",
        reason=["3 个引擎中 1 个应答。", "1 of 3 engines answer."], heard_at=timezone.now() + timedelta(hours=1),
        engines=rows, told={"engines": told, "restarts": 0}, wished=4, applied=4,
    )  # fmt: skip
    Deployment.objects.create(name=f"{name}-int8")
    for n, owner in enumerate(("搜索组", "", "A team with a name that is rather long for a table")):
        key = GatewayKey.objects.create(
            name=f"{name} {n}", start="sk-4fT9a", digest=f"{n}" * 64, owner=owner, rate_per_min=600 if n else None,
            expires_at=timezone.now() + timedelta(days=90 - 100 * (n == 2)),
        )  # fmt: skip
        key.deployments.set([made] if n else [])
        for day in range(12):
            KeyUsage.objects.create(
                key=key, deployment=made, day=timezone.localdate() - timedelta(days=day), requests=1200 * (n + 1),
                failed=n, prompt_tokens=900_000 * (day % 5 + 1), completion_tokens=210_000 * (day % 3 + n),
            )  # fmt: skip
    return {"name": name, "key": GatewayKey.objects.order_by("-pk").last().pk}


def no_gateways() -> None:
    from deployments.models import Deployment, GatewayKey

    Deployment.objects.all().delete()
    GatewayKey.objects.all().delete()


ALL = (gateway, no_gateways)
