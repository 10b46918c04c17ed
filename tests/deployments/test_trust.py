"""After a change of the authority: who is told, what the agent keeps, and what it refuses."""

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from console import certificates, tls
from console.models import User
from deployments.agent import addresses, authorities, config, layers, worker
from deployments.agent.orders import CannotObey
from deployments.agent.trust import Trust
from deployments.models import Enrolment, Order, OrderState, Server
from deployments.services import trust


def authority():
    return certificates.authority(certificates.new_key(), "CA", now=certificates.now())


# ---------- on the server ----------


@pytest.fixture
def written(tmp_path):
    """written(pem, scheme=…): the agent's config on disk, loaded."""

    def write(pem, scheme="rediss"):
        data = {
            "server_id": 7, "name": "kp-07", "redis_url": f"{scheme}://h7:x@10.0.0.5:6380/0", "prefix": "h:7",
            "key": "5a" * 32, "state_dir": str(tmp_path), "redis_ca": pem,
        }  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(data))
        return config.load(tmp_path / "config.json")

    return write


def obeying(found, probe=lambda there, address: 0):
    connection = SimpleNamespace(connection_pool=SimpleNamespace(connection_kwargs={}))
    return Trust(found, connection, probe), connection.connection_pool.connection_kwargs


def test_an_order_replaces_whom_the_config_trusts_until_the_server_joins_anew(written):
    old, new, third = authority(), authority(), authority()
    handler, options = obeying(written(old))
    assert handler.handlers["trust"]({"pem": new}) == authorities.digest(new)
    assert options == {"ssl_ca_data": new}
    assert written(old).redis_options == {"ssl_ca_data": new}
    again, _options = obeying(written(old))
    again.trust({"pem": third})
    assert written(old).redis_ca == third
    assert written(new).redis_ca == new  # joining wrote another config


@pytest.mark.parametrize("args", [{}, {"pem": 7}, {"pem": ""}, {"pem": "nothing"}, {"pem": "x" * 70_000}])
def test_what_is_no_authority_is_refused_and_nothing_is_kept(written, tmp_path, args):
    old = authority()
    handler, options = obeying(written(old))
    with pytest.raises(CannotObey):
        handler.trust(args)
    assert options == {} and not (tmp_path / layers.AUTHORITIES).exists()


def test_one_by_which_redis_does_not_show_itself_changes_nothing(written, tmp_path):
    old, new, tried = authority(), authority(), []

    def probe(there, address):
        tried.append((there.redis_options, address))
        raise CannotObey("连不到", "it cannot be reached")

    handler, options = obeying(written(old), probe)
    with pytest.raises(CannotObey, match="cannot be reached"):
        handler.trust({"pem": new})
    assert tried == [({"ssl_ca_data": new}, "rediss://10.0.0.5:6380/0")]
    assert options == {} and not (tmp_path / layers.AUTHORITIES).exists()


def test_the_worker_starts_anew_when_authority_or_address_has_changed(written, tmp_path):
    old, new = authority(), authority()
    found = written(old)
    moved = worker.has_moved(found)
    assert not moved()
    obeying(found)[0].trust({"pem": new})
    assert moved()
    again = worker.has_moved(written(old))
    assert not again()
    addresses.write(tmp_path, addresses.Kept(written(old).origin, ("rediss://10.0.0.6:6380/0",)))
    assert again()


def test_a_server_without_tls_cannot_obey(written):
    handler, _options = obeying(written(authority(), scheme="redis"))
    with pytest.raises(CannotObey, match="without TLS"):
        handler.trust({"pem": authority()})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"over": "x"}', '{"over": "x", "pem": "y"}'])
def test_a_broken_file_leaves_the_configs_own(written, tmp_path, text):
    (tmp_path / layers.AUTHORITIES).write_text(text)
    old = authority()
    assert written(old).redis_ca == old


# ---------- on the console ----------


@pytest.fixture
def networked(settings, tmp_path, monkeypatch, valkey):
    monkeypatch.delenv("REDIS_URL", raising=False)
    settings.VAR_DIR, settings.HTTPS, settings.BIND = tmp_path, True, "10.0.0.5"
    tls.prepare(["10.0.0.5"])
    (tmp_path / "tls" / "redis_port").write_text("6380\n")


def joined(name, at):
    server = Server.objects.create(name=name)
    by, _made = User.objects.get_or_create(username="root")
    row = {"server": server, "made_by": by, "used_at": at, "expires_at": at}
    Enrolment.objects.create(**row, digest=Enrolment.digest_of(name))
    return server


@pytest.mark.django_db
def test_only_who_joined_before_is_told_and_only_until_it_has_answered(networked):
    now = timezone.now()
    early, late, both = joined("kp-1", now - timedelta(days=9)), joined("kp-2", now), joined("kp-3", now)
    Enrolment.objects.create(
        server=both, made_by=None, used_at=now - timedelta(days=9), expires_at=now, digest=Enrolment.digest_of("x")
    )
    Server.objects.create(name="never")
    assert late not in trust.behind()
    assert trust.behind() == [early]
    assert trust.tell(trust.behind()) == 1
    assert trust.tell(trust.behind()) == 0  # it is under way
    order = Order.objects.get()
    assert order.args == {"pem": tls.shown().ca}
    Order.objects.update(state=OrderState.DONE, words=authorities.digest(tls.shown().ca), args={})
    assert trust.behind() == []
    assert trust.tell([]) == 0


@pytest.mark.django_db
def test_nobody_is_told_where_the_site_signs(networked, settings):
    joined("kp-1", timezone.now() - timedelta(days=9))
    settings.TLS_CERTIFICATE = "/site.pem"
    assert trust.behind() == []
