"""The page on which a deployment's settings are changed: what differs, what restarts, and the new revision."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from deployments.models import Deployment, Revision
from deployments.services import deployments
from tests.deployments.test_wizard import client, seven  # noqa: F401


@pytest.fixture
def deployed(seven, client):  # noqa: F811
    from console.models import User

    by = User.objects.get(username="olga")
    return deployments.create("seven", seven, {"served_model_name": "seven", "env": {"A": "1"}}, by=by)


def sent(deployed, **given):
    base = {"full": "1", "r": deployed.revision.n, "p-served_model_name": "seven", "p-env": "A=1"}
    return {**base, **given}


def test_the_form_has_what_the_revision_says(client, deployed):  # noqa: F811
    text = client.get("/deployments/seven/change").content.decode()
    assert 'name="p-served_model_name" value="seven"' in text and "A=1" in text


def test_a_model_that_lies_nowhere_any_more_stays_chosen(client, deployed):  # noqa: F811
    deployed.revision.artifact.places.all().delete()
    text = client.get("/deployments/seven/change").content.decode()
    assert f'<option value="{deployed.revision.artifact_id}" selected>' in text


def test_the_difference_and_the_question_come_first(client, deployed):  # noqa: F811
    given = sent(deployed, do="ask", **{"p-tensor_parallel_size": "2"})
    text = client.post("/deployments/seven/change", given).content.decode()
    assert "Change seven so?" in text and "Tensor parallel" in text and "No replica restarts." in text
    assert Deployment.objects.get().revision.n == 1
    hidden = dict(re.findall(r'<textarea hidden name="([^"]+)">([^<]*)</textarea>', text))
    assert hidden["p-tensor_parallel_size"] == "2"
    client.post("/deployments/seven/change", {"full": "1", "r": "1", "do": "change", "note": "more", **hidden})
    made = Deployment.objects.get().revision
    assert made.n == 2 and made.note == "more"
    assert made.settings == {"served_model_name": "seven", "env": {"A": "1"}, "tensor_parallel_size": 2}


def test_what_nobody_changed_is_no_revision(client, deployed):  # noqa: F811
    answer = client.post("/deployments/seven/change", sent(deployed, do="change"))
    assert answer.status_code in (400, 409, 422) and Revision.objects.count() == 1


def test_a_change_meanwhile_is_not_overwritten(client, deployed):  # noqa: F811
    answer = client.post("/deployments/seven/change", sent(deployed, do="change", r="7", **{"p-seed": "3"}))
    assert answer.status_code == 409 and "meanwhile" in answer.content.decode() and Revision.objects.count() == 1


def test_a_mistake_is_marked_and_asked_for_no_more(client, deployed):  # noqa: F811
    given = sent(deployed, do="ask", **{"p-tensor_parallel_size": "3"})
    text = client.post("/deployments/seven/change", given).content.decode()
    assert "cannot be divided by 3" in text and "Change seven so?" not in text


def test_a_guide_is_understood_here_too(client, deployed):  # noqa: F811
    answer = client.post("/deployments/seven/change", sent(deployed, do="look", guide="max_batch_size=32"))
    assert parse_qs(urlsplit(answer.url).query)["p-max_num_seqs"] == ["32"]
    assert "continuously" in client.get(answer.url).content.decode()


def test_the_part_beside_says_what_changes(client, deployed):  # noqa: F811
    answer = client.get("/deployments/seven/change?full=1&p-max_num_seqs=8", headers={"X-Part": "1"})
    assert "<html" not in answer.content.decode() and "Requests at once" in answer.content.decode()
