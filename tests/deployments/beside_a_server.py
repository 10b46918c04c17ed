"""Somebody who acts while a server's row is held: the way two transactions meet in tests of locks (PostgreSQL)."""

import threading

from django.db import connection, transaction

from deployments.row_locks import lock_server
from tests.waiting import until


def somebody_waits():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return cursor.fetchone()[0]


def run_beside(server_pk, act, touch):
    """`act()` in a thread while we hold the server and then write, in `touch()`, what belongs to it."""
    errors = []

    def other():
        try:
            act()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=other)
    with transaction.atomic():
        lock_server(server_pk)
        thread.start()
        until(somebody_waits)
        touch()  # a deadlock where `act` has locked it already
    thread.join(30)
    assert not thread.is_alive() and errors == []
