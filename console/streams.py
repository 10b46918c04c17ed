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


def orders(server_id: int) -> str:
    return f"h:{server_id}:orders"


BEATS = "h:*:beat"
FLEET_NOW = "fleet:now"  # hash server id -> JSON "now", see monitoring/services/live_state.py
FLEET_BEATS = "fleet:beats"  # hash server id -> JSON [epoch of its last beat, whether its worker lives]
FLEET_STEPS = "fleet:steps"  # hash metric -> JSON {"gen", "steps"}: one letter of base 36 a cell, for who joins
RECONCILE_TOLD = "reconcile:told"  # hash deployment id -> digest of the replicas that gateways were told of
REPLICAS_NOW = "replicas:now"  # hash replica id -> JSON, see deployments/services/replica_live.py
EXTERNAL_NOW = "external:now"  # hash server id -> JSON, see deployments/services/external_live.py
INGEST_ALIVE = "ingest:alive"  # JSON {"t": epoch, "lag_ms": n}, written each second
INGEST_LEASE = "ingest:lease"
DOUBT = "fleet:doubt"  # JSON [{…}], see console/doubt.py
DOUBT_ENDED = "fleet:doubt:ended"  # who says that the silent servers are really down, for ingest to take
LIVE = "live:"
DEMO_USER = "demo"


def live(topic: str) -> str:
    """The pub/sub channel of a websocket topic."""
    return LIVE + topic


def reconcile_asked(deployment_id: int) -> str:
    """Set while a look at the deployment stands in the console's own queue."""
    return f"reconcile:asked:{deployment_id}"


def reconcile_later(deployment_id: int) -> str:
    """Set while a deployment whose wish cannot be met is left alone by the sweep."""
    return f"reconcile:later:{deployment_id}"


def remedy_asked(replica: str) -> str:
    """Set while the reading of a replica's log stands in the console's own queue."""
    return f"remedy:asked:{replica}"


def remedy_newest(replica: str) -> str:
    """JSON [piece, died]: which piece of its log is to be read then."""
    return f"remedy:newest:{replica}"


# Rules about commands that older ones, Redis 7.0 for instance, do not know and then refuse; see enrol.set_users.
NEWER_RULES = ["+client|setinfo", "-clusterscan"]


def user(server_id: int) -> str:
    """The name of the one server's own Redis user."""
    return f"h{server_id}"


def acl_rules(server_id: int, password: str, *more: str, on: bool = True) -> list[str]:
    """The rights of one server's own Redis user, as ACL SETUSER takes them; `more` are passwords that serve as well.

    `+info` is needed: without it RQ dequeues with BLPOP instead of BLMOVE and silently loses its
    crash safety. `resetchannels` stands before `&channel`: Redis 6.2 refuses the line otherwise. CLIENT TRACKING and
    PUBSUB would tell the names of everybody's keys and channels, a client that subscribes to names without end stops
    Redis for seconds when it goes (an agent subscribes to none), and PFMERGE with one key takes anybody's (seen in
    Redis 7.0 and Valkey 9.1). tests/deployments/test_isolation.py tries every command there is.
    """
    own = prefix(server_id)
    return [
        "reset", "on" if on else "off", *(f">{word}" for word in (password, *more)),
        "resetkeys", "resetchannels", f"~{own}:*", f"&{own}:*",
        "-@all", "+@read", "+@write", "+@transaction", "+@connection", "+@blocking",
        "-@hyperloglog", "-@geo", "-@bitmap", "-@dangerous", "-@scripting", "-@admin",
        "-scan", "-randomkey", "-dbsize", "-select", "-move", "-copy", "-client", "+publish",
        "+client|setname", "+client|id", "+client|info", "+info", "+time", *NEWER_RULES,
    ]  # fmt: skip


def demo_acl_rules(password: str) -> list[str]:
    """The rights of the demo process, which is link and sampler of every simulated server.

    It runs on the console's own machine from the console's own code, and Redis matches each key against
    every pattern of a user: a thousand prefixes would cost more than they guard.
    """
    return [rule.replace(prefix(0), "h") if rule[0] in "~&" else rule for rule in acl_rules(0, password)]
