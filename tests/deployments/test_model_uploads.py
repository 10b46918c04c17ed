"""Models that are uploaded through the browser: pieces, digests, quota, who may take one away and who gets it."""

# ruff: noqa: F811 - fixtures of model_site.py

import hashlib
import json

import pytest
from auditlog.models import LogEntry

from console.errors import ConsoleError
from console.models import ApiToken, User
from deployments.agent import signing
from deployments.models import Job, Server
from deployments.services import model_uploads
from tests.deployments.model_site import FORM, as_operator, olga, own_var, server, text  # noqa: F401

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

JSON = {"HTTP_ACCEPT": "application/json"}
FILES = {"config.json": b'{"a": 1}', "sub/x.safetensors": bytes(range(256)) * 40_000, "empty.txt": b""}


def sizes():
    return [(name, len(data)) for name, data in sorted(FILES.items())]


def sent(client, upload, *, most=3 << 20):
    """Send what is missing, as the page's script does."""
    for n, row in enumerate(upload["files"]):
        data, at = FILES[row["name"]], row["here"]
        while at < len(data):
            answer = client.post(f"/models/uploads/{upload['id']}/{n}/{at}", data[at : at + most],
                                 content_type="application/octet-stream", **JSON)  # fmt: skip
            assert answer.status_code == 200, answer.content
            at = answer.json()["here"]


def begun(client, **more):
    body = {"name": "tiny", "files": sizes(), **more}
    return client.post("/models/uploads/", json.dumps(body), content_type="application/json", **JSON)


def test_an_upload_comes_in_pieces_and_is_digested(as_operator, server):
    upload = begun(as_operator).json()
    assert (upload["here"], upload["whole"]) == (0, False)
    refused = as_operator.post("/models/download/", {**FORM, "source": "upload", "model": upload["id"]})
    assert "not whole yet" in text(refused, 409)
    sent(as_operator, upload)
    found = model_uploads.find(upload["id"])
    assert found.is_whole
    for one in found.files:
        assert one.sha256 == hashlib.sha256(FILES[one.name]).hexdigest()
        assert (found.folder / "files" / one.name).read_bytes() == FILES[one.name]
    assert "all of it is here" in text(as_operator.get("/models/upload/"))
    answer = as_operator.post("/models/download/", {**FORM, "source": "upload", "model": upload["id"]})
    job = Job.objects.get()
    assert answer.status_code == 302 and job.params["folder"] == "/data/models/tiny" and not job.params["endpoint"]
    verbs = [row.additional_data["verb"] for row in LogEntry.objects.order_by("pk") if row.additional_data]
    assert verbs[:2] == ["upload.begun", "upload.whole"]


def test_an_upload_goes_on_after_a_restart(as_operator):
    upload = begun(as_operator).json()
    n, data = 2, FILES["sub/x.safetensors"]
    as_operator.post(
        f"/models/uploads/{upload['id']}/{n}/0", data[:1000], content_type="application/octet-stream", **JSON
    )
    model_uploads._digests.clear()  # the console has started anew
    again = begun(as_operator).json()
    assert again["id"] == upload["id"] and again["files"][n]["here"] == 1000
    sent(as_operator, again)
    assert model_uploads.find(upload["id"]).files[n].sha256 == hashlib.sha256(data).hexdigest()


def test_rest_uploads_the_same_way(client, olga):
    _row, token = ApiToken.make(olga, "operator")
    headers = {"HTTP_AUTHORIZATION": f"Bearer {token}", "HTTP_ACCEPT_LANGUAGE": "en"}
    files = [{"name": name, "size": size} for name, size in sizes()]
    made = client.post("/api/v1/model-uploads", json.dumps({"name": "tiny", "files": files}),
                       content_type="application/json", **headers)  # fmt: skip
    assert made.status_code == 201, made.content
    base = f"/api/v1/model-uploads/{made.json()['id']}"
    for n, row in enumerate(made.json()["files"]):
        data = FILES[row["name"]]
        for at in range(0, len(data), model_uploads.PIECE):
            told = client.put(f"{base}/files/{n}?begin={at}", data[at : at + model_uploads.PIECE],
                              content_type="application/octet-stream", **headers)  # fmt: skip
            assert told.status_code == 200, told.content
    assert client.get(base, **headers).json()["whole"] is True
    assert [one["name"] for one in client.get("/api/v1/model-uploads", **headers).json()["uploads"]] == ["tiny"]
    assert client.delete(base, **headers).status_code == 200 and client.get(base, **headers).status_code == 404


def test_a_piece_that_does_not_fit_is_refused(as_operator):
    upload = begun(as_operator).json()
    base = f"/models/uploads/{upload['id']}"
    for path, data, status in (
        (f"{base}/0/5", b"x", 409), (f"{base}/0/0", b"x" * 9, 422), (f"{base}/9/0", b"x", 404),
        ("/models/uploads/0123456789abcdef/0/0", b"x", 404), (f"{base}/2/0", b"x" * (model_uploads.PIECE + 5), 422),
    ):  # fmt: skip
        answer = as_operator.post(path, data, content_type="application/octet-stream", **JSON)
        assert answer.status_code == status, (path, answer.content)
    assert model_uploads.find(upload["id"]).here == 0


@pytest.mark.parametrize(
    "more",
    [{"files": [["../x", 1]]}, {"files": [["a.bin", 1]]}, {"files": []}, {"files": [["a", -1]]}, {"files": "x"},
     {"name": "../x"}, {"name": ""}, {"files": [["a", 1], ["a", 2]]}, {"files": [[".git/x", 1]]}, {"files": [[1]]},
     {"files": [["a", 1 << 49]]}, {"files": [["a.json", 1]] * 3000}, {"name": "x" * 200}],
)  # fmt: skip
def test_an_upload_that_cannot_be_is_a_sentence(as_operator, more):
    answer = begun(as_operator, **more)
    assert answer.status_code == 422 and answer.json()["error"]["what"]
    assert not model_uploads.present()


def test_the_quota_holds(as_operator, settings):
    settings.MODEL_UPLOAD_GB = 0
    assert begun(as_operator).json()["error"]["code"] == "upload_quota"


def test_an_upload_is_handed_to_servers_that_sign(as_operator, client, server):
    upload = begun(as_operator).json()
    sent(as_operator, upload)
    as_operator.post("/models/download/", {**FORM, "source": "upload", "model": upload["id"]})
    data = FILES["sub/x.safetensors"]

    def ask(key=server.key, **more):
        body = json.dumps(
            {"op": "upload", "server": server.pk, "upload": upload["id"], "file": "", "begin": "0"} | more
        )
        told = {"body": body, "mac": signing.sign(key, body)}
        return client.post("/join/upload", json.dumps(told), content_type="application/json")

    assert json.loads(pieces(ask()))["files"]
    assert pieces(ask(file="sub/x.safetensors", begin="1000")) == data[1000:]
    assert ask(key="00" * 32).status_code == 403
    other = Server.objects.create(name="kp-09", key="6c" * 32)
    assert ask(key=other.key, server=other.pk).status_code == 403  # no job of its asks for it
    for wrong in ({"file": "../upload.json"}, {"upload": "../x"}, {"begin": "-1"}, {"begin": "9" * 30}):
        assert ask(**wrong).status_code in (403, 404)
    Job.objects.update(state="cancelled")
    assert ask().status_code == 403


def pieces(answer):
    assert answer.status_code == 200
    from asgiref.sync import async_to_sync

    async def every():
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(every)()


def test_an_upload_is_taken_away_by_who_began_it(as_operator, olga):
    upload = begun(as_operator).json()
    mike = User.objects.create_user("mike", role="operator")
    with pytest.raises(ConsoleError):
        model_uploads.delete(model_uploads.find(upload["id"]), by=mike)
    as_operator.post(f"/models/uploads/{upload['id']}/delete")
    assert not model_uploads.present() and not model_uploads.root().joinpath(upload["id"]).exists()
