"""What agents themselves print, as rows: one log per server, in pieces."""

from django.db import models

from deployments.models.fleet import Server
from deployments.models.stream import Stream, StreamChunk


class AgentLog(Stream):
    """A piece of the log of a server's agent: a new one begins with each start of it, and when one has grown long.

    `id` is `g<server>-<n>`: its agent calls it `g<n>`, as it does not know what number its server has here.
    """

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="agent_logs")
    n = models.PositiveIntegerField()

    class Meta:
        ordering = ["server", "n"]
        constraints = [models.UniqueConstraint(fields=["server", "n"], name="agent_log_once")]


class AgentChunk(StreamChunk):
    """Lines of a piece."""

    log = models.ForeignKey(AgentLog, on_delete=models.CASCADE, related_name="chunks")

    class Meta:
        ordering = ["log", "first"]
        constraints = [models.UniqueConstraint(fields=["log", "first"], name="agent_chunk_once")]
