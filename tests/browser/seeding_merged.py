"""What seeding.py does for views of several logs as one, and for links to a log."""

NAME = "many-logs"


def merged(lines=400, replicas=3):
    """A deployment with so many replicas on servers whose clocks differ, each with a log; ids of the newest pieces."""
    from deployments.models import Deployment, Server
    from tests.deployments import log_rows

    Deployment.objects.filter(name=NAME).delete()
    made = log_rows.deployment(NAME)
    pieces = []
    for n in range(1, replicas + 1):
        offset = {2: 4.2, 3: -0.6}.get(n)
        server = Server.objects.update_or_create(name=f"kp-log-{n}", defaults={"clock_offset_s": offset})[0]
        ahead = round((offset or 0) * 1000)
        text = [
            (
                i * 30 + n * 10 + ahead,
                f"INFO replica {n} step {i}" if i % 97 or n != 2 else f"ERROR replica {n} broke at {i}",
            )
            for i in range(lines)
        ]
        head = log_rows.piece(log_rows.replica(made, n, server))
        pieces.append(log_rows.stored(head, log_rows.records(*text), 50).pk)
    return {"deployment": NAME, "pieces": pieces}


def merged_more(piece, texts, at):
    """Lines behind a piece, from `at` ms after the first log's begin."""
    from deployments.models import EngineLog
    from tests.deployments import log_rows

    head = EngineLog.objects.get(pk=piece)
    log_rows.stored(head, log_rows.records(*[(at + i, text) for i, text in enumerate(texts)]))


def merged_gone():
    from deployments.models import Deployment, Server

    Deployment.objects.filter(name=NAME).delete()
    Server.objects.filter(name__startswith="kp-log-").delete()


ALL = (merged, merged_more, merged_gone)
