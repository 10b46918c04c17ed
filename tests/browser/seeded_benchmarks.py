"""Deployments with runs and findings, for `seeding`."""

import json


def serving(name="chatty", port=0, server="kp-01"):
    """A deployment with one ready replica at that port of this machine; its API key."""
    from deployments.models import Artifact, Deployment, Replica, Revision, Server

    host = Server.objects.get(name=server)
    Deployment.objects.filter(name=name).delete()
    summary = {"layers": 36, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "max_position": 40960,
               "weight_bytes": 16_400_000_000}  # fmt: skip
    model = Artifact.objects.update_or_create(
        fingerprint=name.encode().hex().ljust(64, "0"), defaults={"name": name, "format": "hf", "summary": summary}
    )[0]
    made = Deployment.objects.create(name=name)
    settings = {"served_model_name": name, "max_model_len": 32768, "log_requests": True}
    made.revision = Revision.objects.create(
        deployment=made, n=1, artifact=model, fingerprint=model.fingerprint, settings=settings
    )
    made.save()
    engine = {"metrics": {"running": 2, "waiting": 0}, "facts": {"max_model_len": 4096}}
    Replica.objects.create(
        deployment=made, revision=made.revision, n=1, state="ready", server=host, path=f"/data/models/{name}",
        address="127.0.0.1", port=port, engine=engine,
    )  # fmt: skip
    return made.api_key


def measured(name="chatty", count=2):
    """Runs of it, as simulated servers act them out."""
    from deployments.demo import acts_benchmark
    from deployments.kinds import benchmark
    from deployments.models import Attempt, Benchmark, Deployment, Job
    from deployments.services import told
    from deployments.steps import read_params
    from tests.browser.seeding import job

    of = Deployment.objects.get(name=name).replica_set.get()
    for n in range(count):
        params = {"replica": of.pk, "deployment": of.deployment_id, "degrees": "1, 16, 64, 128", "model": f"{name}{n}",
                  "base_url": "http://127.0.0.1:1", "tokenizer": of.path, "target_concurrency": 120,
                  "target_tpot_ms": 15.0 + 20 * n}  # fmt: skip
        seeded = job(of.server.name, "benchmark", "succeeded", params=params)
        for step in benchmark.steps(read_params(benchmark.Params, params)):
            for said in acts_benchmark.of(step.argv[3:]):
                if isinstance(said, dict):
                    data = json.loads(json.dumps(said["data"]))
                    told.hand_over(Attempt.objects.get(pk=seeded["attempt"]), said["told"], data)
        assert Benchmark.objects.filter(job=Job.objects.get(pk=seeded["job"]), ended_at__isnull=False).exists()


def failed_replica(name="chatty", line="ValueError: the estimated maximum model length is 20992. Try increasing"):
    """It failed, and its log was read."""
    from deployments.models import Deployment
    from deployments.services import remedying

    of = Deployment.objects.get(name=name).replica_set.get()
    of.state = "failed"
    of.save()
    remedying.look(
        of, [line, "NPU out of memory. Tried to allocate 2.00 GiB", "RuntimeError: Failed to infer device type"]
    )
