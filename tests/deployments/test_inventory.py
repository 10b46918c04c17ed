"""What people say about servers: edits, bulk edits, their history, and the way back."""

import pytest
from auditlog.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.translation import override

from console.errors import Conflict, ConsoleError, Invalid, NotAllowed, NotFound
from console.models import User
from deployments.models import SavedFilter, Server, ServerChange
from deployments.services import filters, history, inventory, selection

pytestmark = pytest.mark.django_db


@pytest.fixture
def many(db):
    return [Server.objects.create(name=f"kp-1{n}", rack="A1", labels={"env": "test"}) for n in range(1, 4)]


def told(server):
    return [(row.field, row.before, row.after, row.by_name) for row in history.page(server)[0]]


def test_an_edit_stands_in_the_history_with_who_before_after_and_ticket(server, operator):
    values = {"rack": " B2 ", "labels": {"env": "prod"}, "notes": "spare\r\nfan", "display_name": "Left one"}
    inventory.edit(server, values, by=operator, ticket="OPS-7")
    server.refresh_from_db()
    assert (server.rack, server.labels, server.notes) == ("B2", {"env": "prod"}, "spare\nfan")
    rows = history.page(server)[0]
    assert {row.field for row in rows} == {"rack", "labels", "notes", "display_name"}
    assert {(row.by_name, row.ticket) for row in rows} == {("olga", "OPS-7")}
    assert len({row.change_set for row in rows}) == 1
    assert ("rack", "", "B2", "olga") in told(server)
    assert LogEntry.objects.filter(additional_data__verb="server.edited").count() == 1


def test_what_does_not_differ_is_no_change(server, operator):
    inventory.edit(server, {"rack": server.rack, "labels": {}}, by=operator)
    assert told(server) == []


def test_somebody_elses_change_in_between_is_said(server, operator):
    seen = inventory.version_of(server)
    inventory.edit(server, {"site": "bj"}, by=operator, version=seen)
    with pytest.raises(Conflict) as refused:
        inventory.edit(server, {"site": "sh"}, by=operator, version=seen)
    assert refused.value.status == 412
    server.refresh_from_db()
    assert server.site == "bj"


@pytest.mark.parametrize(
    "values",
    [
        {"name": "other"},
        {"key": "00"},
        {"rack": "x" * 64},
        {"rack": "a\nb"},
        {"rack": 7},
        {"notes": "\x00"},
        {"labels": ["env"]},
        {"labels": {"en v": "x"}},
        {"labels": {"env": ""}},
        {"labels": {"env": "a b"}},
        {"labels": {"env": 7}},
        {"labels": {"demo": "x"}},
        {"labels": {f"l{n}": "x" for n in range(41)}},
        {"address_roles": {"not-an-address": "bmc"}},
        {"address_roles": {"192.0.2.7": "chief"}},
        {"address_roles": "192.0.2.7"},
    ],
)
def test_what_cannot_be_is_refused_in_words_and_changes_nothing(server, operator, values):
    with pytest.raises(Invalid) as refused:
        inventory.edit(server, {"site": "bj", **values}, by=operator)
    assert refused.value.what and refused.value.do
    server.refresh_from_db()
    assert server.site == "" and not ServerChange.objects.exists()


def test_a_viewer_changes_nothing(viewer, many):
    for act in (
        lambda: inventory.edit(many[0], {"rack": "B1"}, by=viewer),
        lambda: inventory.edit_many(many, inventory.Bulk(rack="B1"), by=viewer),
        lambda: inventory.undo("0" * 16, by=viewer),
    ):
        with pytest.raises(NotAllowed):
            act()
    assert not ServerChange.objects.exists()


def test_the_labels_of_the_demo_stay_and_are_not_shown(operator):
    server = Server.objects.create(name="kp-sim", simulated=True, labels={"demo": True, "demo_holder": "a b"})
    assert inventory.labels_of(server) == {}
    inventory.edit(server, {"labels": {"env": "x"}}, by=operator)
    server.refresh_from_db()
    assert server.labels == {"demo": True, "demo_holder": "a b", "env": "x"}


def test_a_bulk_edit_is_shown_before_and_taken_back_after(many, operator):
    bulk = inventory.clean_bulk(inventory.Bulk({"team": "nlp"}, ["env"], site="bj"))
    inventory.edit(many[2], {"site": "bj", "labels": {"team": "nlp"}}, by=operator)
    many[2].refresh_from_db()
    hits = inventory.plan(many, bulk)
    assert [len(hit.changes) for hit in hits] == [2, 2, 0]
    change_set, changed = inventory.edit_many(many, bulk, by=operator, ticket="OPS-9")
    assert changed == 2
    assert [row.labels for row in Server.objects.order_by("name")] == [{"team": "nlp"}] * 3
    done, left = inventory.undo(change_set, by=operator)
    assert (done, left) == (4, [])
    first = Server.objects.get(name="kp-11")
    assert (first.labels, first.site, first.rack) == ({"env": "test"}, "", "A1")
    assert Server.objects.get(name="kp-13").site == "bj"
    with pytest.raises(Conflict):
        inventory.undo(change_set, by=operator)


def test_many_servers_cost_no_query_each_but_the_audit_entry(many, operator, django_assert_num_queries):
    bulk = inventory.Bulk({"team": "nlp"}, rack="B1")
    servers, _problems = selection.find(selection.Asked(names=[server.name for server in many], fleet="both"))
    with django_assert_num_queries(0):
        assert [len(hit.changes) for hit in inventory.plan(servers, bulk)] == [2, 2, 2]
    with CaptureQueriesContext(connection) as few:
        inventory.edit_many(servers[:1], bulk, by=operator)
    with CaptureQueriesContext(connection) as more:
        inventory.edit_many(servers[1:], bulk, by=operator)
    assert len(more) - len(few) == 1


def test_taking_back_costs_no_query_for_each_change_but_the_audit_entry(many, operator):
    bulk = inventory.Bulk({"team": "nlp"}, rack="B1", site="bj")
    one, _n = inventory.edit_many(many[:1], bulk, by=operator)
    two, _n = inventory.edit_many(many[1:], bulk, by=operator)
    with CaptureQueriesContext(connection) as few:
        assert inventory.undo(one, by=operator) == (3, [])
    with CaptureQueriesContext(connection) as more:
        assert inventory.undo(two, by=operator) == (6, [])
    assert len(more) - len(few) == 1
    assert [(row.rack, row.site, row.labels) for row in Server.objects.order_by("name")] == [
        ("A1", "", {"env": "test"})
    ] * 3


def test_what_was_changed_again_since_is_left_and_said(many, operator):
    change_set, _n = inventory.edit_many(many, inventory.Bulk(rack="B1"), by=operator)
    inventory.edit(many[1], {"rack": "C1"}, by=operator)
    with override("en"):
        done, left = inventory.undo(change_set, by=operator)
    assert done == 2 and left == ["Rack of kp-12 has been changed since."]
    assert [row.rack for row in Server.objects.order_by("name")] == ["A1", "C1", "A1"]


def test_a_bulk_edit_of_nothing_or_of_too_many_labels_is_refused_whole(many, operator):
    with pytest.raises(Invalid):
        inventory.edit_many(many, inventory.Bulk(), by=operator)
    full = {f"l{n}": "x" for n in range(40)}
    Server.objects.filter(name="kp-13").update(labels=full)
    with pytest.raises(Invalid):
        inventory.edit_many(many, inventory.Bulk({"one": "more"}), by=operator)
    assert Server.objects.get(name="kp-11").labels == {"env": "test"}
    with pytest.raises(NotFound):
        inventory.undo("0123456789abcdef", by=operator)


def test_roles_of_addresses_are_guessed_until_somebody_sets_them(server, operator):
    server.facts = {
        "addresses": [
            {"interface": "eth0", "address": "192.0.2.7", "default": True, "local": False},
            {"interface": "eth1", "address": "198.51.100.7", "default": False, "local": False},
            {"interface": "docker0", "address": "172.17.0.1", "default": False, "local": True},
            "nonsense",
        ]
    }
    server.save()
    inventory.edit(server, {"address_roles": {"198.51.100.7": "management", "192.0.2.200": "bmc"}}, by=operator)
    server.refresh_from_db()
    assert [(row["address"], row["role"], row["source"]) for row in inventory.guessed_roles(server)] == [
        ("192.0.2.7", "management", "guess"),
        ("198.51.100.7", "management", "set"),
        ("172.17.0.1", "", ""),
        ("192.0.2.200", "bmc", "set"),
    ]
    server.facts = {"addresses": 7}
    assert [row["address"] for row in inventory.guessed_roles(server)] == ["192.0.2.200", "198.51.100.7"]


def test_history_comes_in_pages(server, operator):
    for n in range(5):
        inventory.edit(server, {"rack": f"R{n}"}, by=operator)
    first, following = history.page(server, limit=2)
    second, more = history.page(server, following, limit=2)
    last, end = history.page(server, more, limit=2)
    assert [row.after for row in (*first, *second, *last)] == ["R4", "R3", "R2", "R1", "R0"] and end is None


@pytest.mark.parametrize(
    ("words", "hit"),
    [
        ("rack:a1", True), ("rack:A", False), ("site:bei-jing", True), ("label:env", True), ("label:env=prod", True),
        ("label:env=pro", False), ("label:prod", False), ("env=pro", True), ("kp- rack:a1", True), ("rack:", False),
        ("kp-99", False), ("http://x", False),
    ],
)  # fmt: skip
def test_words_of_a_filter(words, hit):
    text = "kp-01 910B3 A1 Bei Jing env=prod"
    assert selection.has_words(text, words, rack="A1", site="Bei Jing", labels="env=prod") is hit


def test_filters_are_ones_own_until_they_are_shared(operator, viewer):
    mine = filters.save("prod", "?find=label%3Aenv%3Dprod&group=site&evil=1", shared=False, by=operator)
    assert mine.query == "group=site&find=label%3Aenv%3Dprod" or mine.query == "find=label%3Aenv%3Dprod&group=site"
    assert list(filters.visible_to(viewer)) == []
    filters.save("prod", "find=x", shared=True, by=operator)
    assert [(row.name, row.query) for row in filters.visible_to(viewer)] == [("prod", "find=x")]
    with pytest.raises(NotAllowed):
        filters.save("all", "find=x", shared=True, by=viewer)
    with pytest.raises(NotFound):
        filters.delete(mine.pk, by=viewer)
    for name in ("", "x" * 61, "a\x00b"):
        with pytest.raises(ConsoleError):
            filters.save(name, "", shared=False, by=viewer)
    chief = User.objects.create_user("root", password="only-for-this-test", role="administrator")
    assert filters.delete(mine.pk, by=chief) == "prod"
    assert not SavedFilter.objects.exists()
