"""The page of alerts, its count in the rail, and REST."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console import alerts
from console.models import Alert, ApiToken, User

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def words(what):
    return {"what": (f"{what}（中文）", what), "do": ("查看日志。", "Read the log.")}


@pytest.fixture
def signed_in(client):
    def sign_in(role):
        client.force_login(User.objects.create_user(role, role=role))
        return client

    return sign_in


def test_worst_first_and_text_of_servers_is_escaped(signed_in):
    alerts.fire("one", **words("<b>mild</b>"))
    alerts.fire("two", **words("dire"), severity="critical")
    page = signed_in("viewer").get("/alerts/").content.decode()
    assert page.index("dire") < page.index("&lt;b&gt;mild")
    assert "<b>mild" not in page
    assert 'class="tally critical" id="alert-tally">2<' in page
    assert "/resolve" not in page  # a viewer may not


def test_an_operator_resolves_and_the_list_says_who(signed_in):
    client, alert = signed_in("operator"), alerts.fire("one", **words("mild"))
    page = client.post(f"/alerts/{alert.pk}/resolve", follow=True).content.decode()
    assert "operator" in page
    assert "Nothing needs attention" in page or "没有需要处理的事" in page
    assert client.get("/alerts/counts.json").json() == {"open": 0, "critical": 0}
    assert client.post("/alerts/999999/resolve").status_code == 404


def test_the_page_costs_the_same_for_one_and_for_many(signed_in):
    client, counted = signed_in("viewer"), []
    for many in (range(1), range(1, 60)):
        for n in many:
            alerts.fire(f"rule-{n}", **words("x"))
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/alerts/").status_code == 200
        counted.append(len(queries))
    assert counted[0] == counted[1] <= 6


def test_rest_lists_and_resolves(client):
    token = ApiToken.make(User.objects.create_user("wang", role="operator"), "operator")[1]
    head = {"Authorization": f"Bearer {token}"}
    made = [alerts.fire(f"rule-{n}", f"server:{n}", **words("x")) for n in range(3)]
    page = client.get("/api/v1/alerts?limit=2", headers=head).json()
    assert [row["name"] for row in page["alerts"]] == ["rule-2", "rule-1"]
    rest = client.get(f"/api/v1/alerts?limit=2&before={page['before']}", headers=head).json()
    assert ([row["name"] for row in rest["alerts"]], rest["before"]) == (["rule-0"], None)
    said = client.post(f"/api/v1/alerts/{made[0].pk}/resolve", headers=head).json()
    assert (said["state"], said["what"]["en"]) == ("resolved", "x")
    assert Alert.objects.filter(ended_at=None).count() == 2
    ended = client.get("/api/v1/alerts?firing=false", headers=head).json()
    assert [row["name"] for row in ended["alerts"]] == ["rule-0"]
