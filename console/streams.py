"""Every name in Redis, once. What one server may touch lies under `h:<server id>:`."""


def prefix(server_id: int) -> str:
    return f"h:{server_id}"


def rq_prefix(server_id: int) -> str:
    return f"h:{server_id}:rq"


def telemetry(server_id: int) -> str:
    return f"h:{server_id}:telemetry"


def logs(server_id: int) -> str:
    return f"h:{server_id}:logs"


def acked(server_id: int) -> str:
    return f"h:{server_id}:acked"


def beat(server_id: int) -> str:
    return f"h:{server_id}:beat"


BEATS = "h:*:beat"
FLEET_NOW = "fleet:now"
LIVE = "live:"


def live(topic: str) -> str:
    """The pub/sub channel of a websocket topic."""
    return LIVE + topic


def shard_lease(shard: int) -> str:
    return f"ingest:shard:{shard}"


def acl_rules(server_id: int, password: str) -> list[str]:
    """The rights of one server's own Redis user, as ACL SETUSER takes them.

    `+info` is needed: without it RQ dequeues with BLPOP instead of BLMOVE and silently loses its
    crash safety. `resetchannels` stands before `&channel`: Redis 6.2 refuses the line otherwise.
    """
    own = prefix(server_id)
    return [
        "reset", "on", f">{password}", "resetkeys", "resetchannels", f"~{own}:*", f"&{own}:*",
        "-@all", "+@read", "+@write", "+@transaction", "+@pubsub", "+@connection", "+@blocking",
        "-@dangerous", "-@scripting", "-@admin", "-scan", "-randomkey", "-dbsize", "+info", "+time",
    ]  # fmt: skip
