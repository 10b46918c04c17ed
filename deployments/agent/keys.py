"""Names in Redis that one server uses, all under its own prefix, `h:7`. The console's side is console/streams.py."""


def rq_prefix(prefix: str) -> str:
    return f"{prefix}:rq"


def telemetry(prefix: str) -> str:
    return f"{prefix}:telemetry"


def logs(prefix: str) -> str:
    return f"{prefix}:logs"


def acked(prefix: str) -> str:
    return f"{prefix}:acked"


def beat(prefix: str) -> str:
    return f"{prefix}:beat"


def orders(prefix: str) -> str:
    return f"{prefix}:orders"


QUEUE = "jobs"
ENTRY = "deployments.agent.worker.dispatch"
