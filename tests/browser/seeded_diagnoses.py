"""What seeding.py does for pages of diagnoses: a replica that failed, its long log, its diagnosis and its alert."""

LINES, DECISIVE = 1200, 700
SAID = (
    "ValueError: To serve at least one request with the model's max seq len (32768), 5.00 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (3.20 GiB). Based on the available memory, the estimated "
    "maximum model length is 20992. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
)


def fallen_replica():
    """{"page", "piece", "line"} of one that failed by too long a context, as ingest and worker leave it."""
    from deployments.services import remedying, replica_alerts
    from monitoring.services import diagnosing
    from tests.deployments import deployment_rows as rows
    from tests.deployments.model_rows import artifact

    made = rows.deployment("glm-4-32b", artifact("GLM-4-32B", summary={"max_position": 32768}), replicas=1, revisions=2)
    bad = rows.replica(made, 1, rows.server("kp-03", rack="A1"), "failed", (0, 1, 2, 3),
                       reason=["引擎退出，退出码 1", "The engine ended with exit code 1"])  # fmt: skip
    lines = [("o", f"(EngineCore_DP0 pid=77) INFO 06-01 12:00:{n % 60:02} step {n}") for n in range(1, LINES)]
    lines[DECISIVE - 1] = ("e", f"(EngineCore_DP0 pid=77) {SAID}")
    piece = rows.log(bad, lines=lines, done=True, exit_code=1)
    diagnosing.keep(piece, diagnosing.scan(piece).findings())
    remedying.run(piece.pk, True)
    bad.refresh_from_db()
    replica_alerts.fire(bad)
    return {"page": f"/deployments/{made.name}/replicas/1/log", "piece": piece.pk, "line": DECISIVE}


def no_fallen_replica():
    from console.models import Alert
    from deployments.models import Deployment

    Alert.objects.filter(name="replica-failed").delete()
    Deployment.objects.filter(name="glm-4-32b").delete()


def many_diagnoses(n=60):
    """Of the last weeks, of several rules."""
    from datetime import timedelta

    from django.utils import timezone

    from deployments.models import EngineLog
    from monitoring.models import Diagnosis

    first = Diagnosis.objects.latest("pk")
    names = [
        "kv-cache-smaller-than-context",
        "port-in-use",
        "nnal-missing",
        "hccl-link-timeout",
        "npu-out-of-memory",
        "",
        "x",
    ]
    replica = first.piece.replica
    for at in range(n):
        piece = EngineLog.objects.create(
            pk=f"e{replica.pk}-{100 + at}", replica=replica, server=replica.server, n=100 + at
        )
        Diagnosis.objects.create(
            piece=piece, found=names[at * at % 7], findings=first.findings, server=f"kp-0{1 + at % 3}", kind="engine",
            stack=f"vllm-ascend 0.{9 + at % 2}", model=["GLM-4-32B", "Qwen3-32B"][at % 2],
            right=[None, True, True, False][at % 4], made_at=timezone.now() - timedelta(hours=at * at % 150),
        )  # fmt: skip


ALL = (fallen_replica, no_fallen_replica, many_diagnoses)
