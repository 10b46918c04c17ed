"""What tests of waiting jobs and batches share: their kinds, and a server that takes what it is given."""

import json
from pathlib import Path

import pytest

from deployments import ingest, queues
from deployments.models import Attempt, Job, Server
from deployments.services import jobs
from tests.job_fixtures import Spool

KINDS = str(Path(__file__).with_name("agent_kinds"))


@pytest.fixture
def kinds_of_tests(monkeypatch):
    import deployments.kinds

    monkeypatch.setattr(deployments.kinds, "__path__", [*deployments.kinds.__path__, KINDS])


def handed(server):
    """Numbers of the jobs whose dispatch stands in the server's queue, in order."""
    return [Attempt.objects.get(pk=pk).job_id for pk in queues.queue(server.pk).get_job_ids()]


class FakeAgent:
    """Takes dispatches as a server does and sends their events. A cancel of what never came is answered as an agent
    does: it ends as cancelled, and what comes after is refused."""

    def __init__(self, server):
        self.server, self.spools, self.begun, self.refused = server, {}, set(), set()

    def take(self):
        """The attempt that stands first in the queue, or None."""
        queue = queues.queue(self.server.pk)
        while rq_id := queue.connection.lpop(queue.key):
            body = json.loads(queue.fetch_job(rq_id.decode()).args[0])
            attempt = body["attempt"]
            if body["op"] == "run" and attempt not in self.refused:
                self.begun.add(attempt)
                return attempt
            if body["op"] == "cancel" and attempt not in self.begun | self.refused:
                self.refused.add(attempt)
                self.end(attempt, "cancelled")
                jobs.release([self.server.pk])
        return None

    def send(self, attempt, /, **event):
        spool = self.spools.setdefault(attempt, Spool(attempt))
        return ingest.store({self.server.pk: [spool.event(**event)]})

    def start(self, attempt):
        return self.send(attempt, e="started", attempt=attempt, pid=1, host="h")

    def end(self, attempt, state="succeeded"):
        return self.send(attempt, e="ended", state=state, exit=0, reason=None)


def finish(*made, state="succeeded"):
    """These jobs run and end, as their servers would tell it; then what ingest does after."""
    from deployments.services import batches

    for job in made:
        attempt = Attempt.objects.filter(job=job).order_by("-n").first()
        agent = FakeAgent(Server.objects.get(pk=attempt.job.server_id))
        queues.withdraw(attempt)
        agent.start(attempt.pk)
        agent.end(attempt.pk, state)
    rows = Job.objects.filter(pk__in=[job.pk for job in made])
    jobs.release({job.server_id for job in rows})
    batches.advance_all({job.batch_id for job in rows if job.batch_id})
