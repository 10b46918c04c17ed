"""What logs of jobs and of engines are in rows: how far a stream was taken, and its lines as chunks."""

from django.db import models

from deployments.chunks import Chunk


class Stream(models.Model):
    """One log that a server sends. `next_line` and `next_byte` are where its next chunk must begin.

    `kept_bytes` is what its chunks take, compressed; `pruned_at` is when its lines were deleted: see
    services/log_keeping.py.
    """

    id = models.CharField(max_length=40, primary_key=True)
    next_line = models.PositiveBigIntegerField(default=1)
    next_byte = models.PositiveBigIntegerField(default=0)
    done = models.BooleanField(default=False)  # the end of the stream was read
    exit_code = models.IntegerField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    kept_bytes = models.PositiveBigIntegerField(default=0)
    pruned_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def acknowledged(self) -> list[int | bool]:
        """What its server is told: [next line, next byte, done]."""
        return [self.next_line, self.next_byte, self.done]

    def takes(self, chunk: Chunk) -> bool:
        """Whether this chunk comes next, and then the place moves behind it. Not one seen before, or behind a hole."""
        if self.done or (chunk.first, chunk.b0) != (self.next_line, self.next_byte):
            return False
        self.next_line, self.next_byte = chunk.first + chunk.n, chunk.b1
        self.kept_bytes += len(chunk.data)
        return True


class StreamChunk(models.Model):
    """Lines `first` … `first + n - 1` of a stream as its spool holds them, zlib-compressed."""

    first = models.PositiveBigIntegerField()
    n = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        abstract = True
