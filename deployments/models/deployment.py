"""Deployments: the wish, its revisions, and the replicas that run, with the logs of their engines."""

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from deployments.models.artifact import Artifact
from deployments.models.fleet import Server, new_key
from deployments.models.job import Job
from deployments.models.stream import Stream, StreamChunk

USER = settings.AUTH_USER_MODEL  # a revision has settings of its own


class Spread(models.TextChoices):
    """How replicas are laid over the fleet; each is a preference, not a condition."""

    RACKS = "racks", _("over racks")
    SERVERS = "servers", _("over servers")
    PACK = "pack", _("as few servers as possible")


class ReplicaState(models.TextChoices):
    PLANNED = "planned", _("Planned")
    STARTING = "starting", _("Starting")
    LOADING = "loading", _("Loading")
    READY = "ready", _("Ready")
    DEGRADED = "degraded", _("Degraded")
    DRAINING = "draining", _("Draining")
    STOPPED = "stopped", _("Stopped")
    FAILED = "failed", _("Failed")


SERVING = (ReplicaState.READY, ReplicaState.DEGRADED)
GONE = (ReplicaState.STOPPED, ReplicaState.FAILED)


class DeploymentQuerySet(models.QuerySet["Deployment"]):
    def present(self) -> "DeploymentQuerySet":
        return self.filter(deleted_at=None)


class Deployment(models.Model):
    """The wish: this revision, so many replicas. `paused` freezes what the console does by itself.

    `stopped` wishes no replica and keeps `replicas` for the next start. `servers` are the names that may be used, []
    for all. `schedule`: [{"at": "08:00", "days": [0…6], "replicas": 4}], local time. `rollout`: None, or what
    services/rollout.py wrote. `api_key` is what engines of it ask for; `drain_s` is how long running requests get.
    What of the schedule was due before `schedule_at` is done; a replica that failed before `tried_at` keeps nobody
    from starting another one. With `replace_lost` one is started elsewhere for a replica whose server has gone.
    """

    name = models.SlugField(max_length=63)
    title = models.CharField(max_length=100, blank=True, default="")
    notes = models.TextField(blank=True, default="")
    labels = models.JSONField(default=dict, blank=True)
    owner = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL, related_name="+")
    simulated = models.BooleanField(default=False)
    revision = models.ForeignKey("Revision", null=True, on_delete=models.SET_NULL, related_name="+")
    replicas = models.PositiveSmallIntegerField(default=1)
    stopped = models.BooleanField(default=False)
    paused = models.BooleanField(default=False)
    spread = models.CharField(max_length=10, choices=Spread.choices, default=Spread.RACKS)
    servers = models.JSONField(default=list, blank=True)
    schedule = models.JSONField(default=list, blank=True)
    rollout = models.JSONField(null=True, blank=True)
    drain_s = models.PositiveIntegerField(default=600)
    api_key = models.CharField(max_length=64, default=new_key)
    reason = models.JSONField(null=True, blank=True)  # [zh, en], why the wish is not met; None where it is or may be
    schedule_at = models.DateTimeField(default=timezone.now)
    tried_at = models.DateTimeField(null=True, blank=True)
    replace_lost = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = DeploymentQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["name"], condition=models.Q(deleted_at=None), name="deployment_name")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def wished(self) -> int:
        """How many replicas there are to be now."""
        return 0 if self.stopped or self.deleted_at else self.replicas


class Revision(models.Model):
    """One immutable version of a deployment's settings (deployments/serving/settings.py has their shape).

    `fingerprint` is that of the artifact's content: the same path with other files is another model. `back_to` is the
    number of the revision that a rollback went back to.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="revisions")
    n = models.PositiveIntegerField()
    artifact = models.ForeignKey(Artifact, null=True, on_delete=models.SET_NULL, related_name="revisions")
    fingerprint = models.CharField(max_length=64, blank=True, default="")
    settings = models.JSONField(default=dict)
    note = models.CharField(max_length=500, blank=True, default="")
    back_to = models.PositiveIntegerField(null=True, blank=True)
    by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["deployment", "-n"]
        constraints = [models.UniqueConstraint(fields=["deployment", "n"], name="revision_once")]

    def __str__(self) -> str:
        return f"{self.deployment_id} r{self.n}"


class ReplicaQuerySet(models.QuerySet["Replica"]):
    def there(self) -> "ReplicaQuerySet":
        """Those that hold something: neither stopped nor failed for good."""
        return self.exclude(state__in=GONE)


class Replica(models.Model):
    """One engine of a deployment, on one server or, as `nodes` says, on several.

    `npus`: names of the NPUs on `server`, see services/reservations.py; [] on a machine without. `nodes`: [] or
    [{"server": pk, "name", "npus": [...], "rank", "address"}], the first is `server`. `progress`: None or {"what":
    [zh, en], "done", "of"}. `engine`: what the engine told of itself, the shape of agent/engines/now.py. `why`:
    [[zh, en]], why it was placed there. `findings`: what serving/findings.py says of its log, best first.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="replica_set")
    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="replica_set")
    n = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=ReplicaState.choices, default=ReplicaState.PLANNED)
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="replicas")
    npus = models.JSONField(default=list)
    nodes = models.JSONField(default=list)
    path = models.CharField(max_length=1000)  # of the model on its server
    address = models.CharField(max_length=255, default="127.0.0.1")  # where it listens
    port = models.PositiveIntegerField(default=0)
    route = models.CharField(max_length=10, default="process")  # process | systemd | podman | docker
    progress = models.JSONField(null=True, blank=True)
    reason = models.JSONField(null=True, blank=True)  # [zh, en], why it is as it is
    findings = models.JSONField(default=list, blank=True)
    engine = models.JSONField(default=dict, blank=True)
    why = models.JSONField(default=list, blank=True)
    restarts = models.PositiveIntegerField(default=0)
    serve_job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="serves")
    stop_job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="stops")
    created_at = models.DateTimeField(default=timezone.now)
    ready_at = models.DateTimeField(null=True, blank=True)
    drain_until = models.DateTimeField(null=True, blank=True)
    cut = models.PositiveIntegerField(null=True, blank=True)  # requests that its end cut off; None: not known
    ended_at = models.DateTimeField(null=True, blank=True)
    heard_at = models.DateTimeField(null=True, blank=True)  # when its keeper was last heard, by our clock

    objects = ReplicaQuerySet.as_manager()

    class Meta:
        ordering = ["deployment", "n"]
        constraints = [models.UniqueConstraint(fields=["deployment", "n"], name="replica_once")]
        indexes = [models.Index(fields=["server", "state"], name="replica_by_server")]

    def __str__(self) -> str:
        return f"{self.deployment_id}/{self.n}"

    @property
    def name(self) -> str:
        """As its folder and its unit on the server are called."""
        return f"e{self.pk}"

    @property
    def server_ids(self) -> list[int]:
        """Of all the servers it runs on, the one that it answers on first."""
        return list(dict.fromkeys([self.server_id, *(node["server"] for node in self.nodes)]))


class EngineLog(Stream):
    """A piece of a replica's log: a new one begins with each start of the engine, and when one has grown long.

    `id` is `e<replica>-<n>`, as the folder of its spool.
    """

    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="logs")
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="+")
    n = models.PositiveIntegerField()
    reason = models.JSONField(null=True, blank=True)
    died, ill = False, False  # said while it is stored: it ended against our will; it serves badly

    class Meta:
        ordering = ["replica", "n"]
        constraints = [models.UniqueConstraint(fields=["replica", "n"], name="engine_log_once")]


class EngineChunk(StreamChunk):
    """Lines of a piece."""

    log = models.ForeignKey(EngineLog, on_delete=models.CASCADE, related_name="chunks")

    class Meta:
        ordering = ["log", "first"]
        constraints = [models.UniqueConstraint(fields=["log", "first"], name="engine_chunk_once")]


class ExternalEngine(models.Model):
    """An engine that the console did not start: found on a server, watched, never touched.

    `key` tells it from others of its server: kind, and container or pid with its start. `npus` are names as in
    reservations. `alias` is what a person calls it; `watched`: an alert when it goes.
    """

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="external_engines")
    key = models.CharField(max_length=120)
    kind = models.CharField(max_length=20)  # vllm | mindie
    alias = models.CharField(max_length=100, blank=True, default="")
    watched = models.BooleanField(default=False)
    pid = models.PositiveIntegerField(null=True, blank=True)
    user = models.CharField(max_length=64, blank=True, default="")
    container = models.CharField(max_length=100, blank=True, default="")
    image = models.CharField(max_length=300, blank=True, default="")
    model = models.CharField(max_length=1000, blank=True, default="")
    port = models.PositiveIntegerField(null=True, blank=True)
    npus = models.JSONField(default=list)
    health = models.CharField(max_length=10, blank=True, default="")  # ok | failed | '' for not known
    first_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["server", "key"]
        constraints = [models.UniqueConstraint(fields=["server", "key"], name="external_once")]
