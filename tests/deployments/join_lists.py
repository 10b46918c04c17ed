"""Lists of hosts that join by SSH: who, keys that were shown, what a process would be handed, a real sshd."""

import pytest
from django.utils import translation

from console.models import User
from deployments.services import host_list, join_many, join_process
from tests.deployments import ssh_host
from tests.deployments.ssh_host import SshHost

PASSWORD = "Root-pw-93#x"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIXS1b/PsVH720dhV/8q7VXAfxLpCxj5BfpedjugIq/G"
OTHER = KEY[:-4] + "Iq/H"


@pytest.fixture(name="english")
def fixture_english():
    with translation.override("en"):
        yield


@pytest.fixture(name="administrator")
def fixture_administrator(db):
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


@pytest.fixture(name="page")
def fixture_page(client, administrator):
    client.force_login(administrator)
    client.cookies["django_language"] = "en"
    return client


@pytest.fixture(name="host", scope="module")
def fixture_host(tmp_path_factory):
    ssh_host.check_may()
    made = SshHost(tmp_path_factory.mktemp("host"), "kp-01")
    try:
        made.password("root", PASSWORD)
        for port in range(2201, 2207):
            made.sshd(port)
        yield made
    finally:
        made.close()


@pytest.fixture(name="started")
def fixture_started(monkeypatch):
    """What would be handed to a process."""
    given = []
    monkeypatch.setattr(join_process, "start", lambda many, credentials=None: given.append((many.pk, credentials)))
    return given


def made(by, text="kp-01.invalid\nkp-02.invalid\n", **options):
    return join_many.create(host_list.read(text), by=by, **options)


def asking(by, **options):
    """A list whose hosts have shown their keys."""
    many = made(by, **options)
    for row in many.rows.all():
        join_many.keyed(row, KEY)
    join_many.finish(many)
    many.refresh_from_db()
    return many


def states(many):
    return [row.state for row in many.rows.all()]


def codes(many):
    return [row.problem.get("code") for row in many.rows.all()]
