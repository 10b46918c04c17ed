"""The page of a server's history: its data, marks, comparison, file, and bad times."""

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.utils import timezone

from console.models import Alert, ApiToken
from deployments.models import Job, Server
from monitoring.models import Minute
from monitoring.services import plots, rollups

pytestmark = pytest.mark.django_db


@pytest.fixture
def two(server):
    other = Server.objects.create(name="kp-02")
    now = rollups.floor(timezone.now(), 60)
    for one, npus in (
        (server, {"0.0": [10, 1024, 50, 100], "1.0": [30, 3072, 60, None]}),
        (other, {"0.0": [80, 9, 9, 9]}),
    ):
        Minute.objects.bulk_create(
            Minute(server=one, at=now - timedelta(minutes=n), data={"n": 60, "npus": npus}) for n in (5, 6, 7)
        )
    return server, other


def data(client, user, query="span=3600"):
    client.force_login(user)
    return client.get(f"/servers/kp-01/plots/data.json?{query}")


async def whole(answer):
    return b"".join([piece async for piece in answer.streaming_content])


def last(values):
    return next(one for one in reversed(values) if one is not None)


def test_columns_of_each_npu_stand_on_one_grid(two, client, viewer):
    found = data(client, viewer).json()
    assert found["step_s"] == 60 and len(found["at"]) in (60, 61) and found["together"] is None
    assert sorted(found["npus"]) == ["0.0", "1.0"]
    assert sum(one is not None for one in found["npus"]["0.0"]["aicore"]) == 3
    assert set(found["npus"]["1.0"]["power_w"]) == {None}


def test_others_are_compared_as_wholes(two, client, viewer):
    found = data(client, viewer, "span=3600&with=kp-02").json()
    mine = {name: last(values) for name, values in found["together"].items()}
    assert mine == {"aicore": 20.0, "hbm_used_mb": 4096, "temp_c": 60, "power_w": 100}
    assert last(found["others"]["kp-02"]["aicore"]) == 80


def test_what_happened_is_marked_with_its_link(two, client, viewer):
    server, now = two[0], timezone.now()
    job = Job.objects.create(server=server, kind="check", not_after=now, state="failed", started_at=now, ended_at=now)
    Job.objects.create(server=two[1], kind="check", not_after=now, started_at=now)
    Alert.objects.create(name="card-lost", subject=f"server:{server.pk}", what=["丢", "lost"], do=["查", "look"])
    Alert.objects.create(name="card-lost", subject=f"server:{server.pk}1", what=["丢", "lost"], do=["查", "look"])
    marks = data(client, viewer).json()["marks"]
    assert [(one["kind"], one["look"]) for one in marks] == [("job", "critical"), ("alert", "warning")]
    assert marks[0]["link"] == f"/jobs/{job.pk}/"
    long_ago = now.timestamp() - 7200
    assert data(client, viewer, f"since={long_ago}&until={long_ago + 600}").json()["marks"] == []


def test_the_number_of_queries_does_not_grow(two, django_assert_max_num_queries):
    now = timezone.now()
    with django_assert_max_num_queries(8):
        found = plots.whole(two[0], now - timedelta(hours=1), now, [two[1]])
    assert sorted(found["npus"]) == ["0.0", "1.0"] and list(found["others"]) == ["kp-02"]


def test_the_file_has_a_row_for_each_time_and_npu(two, client, viewer):
    client.force_login(viewer)
    answer = client.get("/servers/kp-01/plots/data.csv?span=3600")
    lines = async_to_sync(whole)(answer).decode("utf-8-sig").splitlines()
    assert lines[0] == "epoch_s,npu,aicore,hbm_used_mb,temp_c,power_w"
    assert sum(line.endswith(",1.0,30,3072,60,") for line in lines) == 3


@pytest.mark.parametrize(
    "query",
    ["span=x", "span=-5", "span=1e12", "since=9&until=3", "since=99999999999999", "with=" + "&with=".join("abcde")],
)
def test_a_bad_time_is_refused_in_words(two, client, viewer, query):
    answer = data(client, viewer, query)
    assert answer.status_code == 422


def test_the_page_shows_times_servers_and_where_nothing_was_read(two, client, viewer):
    client.force_login(viewer)
    client.cookies["django_language"] = "en"
    page = client.get("/servers/kp-01/plots/?span=86400&with=kp-02").content.decode()
    assert 'href="?span=3600&amp;with=kp-02"' in page and "This server alone" in page and "plotly.min.js" in page
    assert client.get("/servers/nobody/plots/").status_code == 404


def test_rest_tells_the_same(two, viewer):
    _row, token = ApiToken.make(viewer, "viewer")
    rest = Client(headers={"Authorization": f"Bearer {token}"})
    found = rest.get("/api/v1/servers/kp-01/series?span=3600").json()
    assert last(found["npus"]["0.0"]["aicore"]) == 10
    assert rest.get("/api/v1/servers/kp-01/series?span=no").status_code == 422
