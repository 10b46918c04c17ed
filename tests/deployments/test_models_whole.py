"""A whole console with its own agent: a sample model, a private hub, an upload; all by REST, as a script would."""

import json

import pytest

from deployments.services import model_uploads
from tests.deployments import models_on_disk
from tests.deployments.model_hub import TOKEN, Hub
from tests.waiting import until
from tests.whole import Whole

WITHIN_S = 120


@pytest.fixture
def hub(tmp_path):
    folder = models_on_disk.model(tmp_path / "origin")
    made = Hub({path.name: path.read_bytes() for path in folder.iterdir()}, token=TOKEN)
    yield made
    made.close()


@pytest.fixture
def console(tmp_path, hub):
    whole = Whole(tmp_path, demo_servers=1, MODEL_HUB=hub.url, MODEL_TOKENS=f"{hub.url} {TOKEN}", no_proxy="*")
    yield whole
    whole.stop()


class Script:
    def __init__(self, console):
        self.console, self.token = console, console.token()
        rows = until(lambda: [one for one in self.call("/servers")["servers"] if not one["simulated"]], WITHIN_S)
        self.server = rows[0]["name"]

    def call(self, path, body=None):
        return self.console.call(path, self.token, body)

    def ended(self, job):
        def state():
            found = self.call(f"/jobs/{job}")
            return found if found["state"] in ("succeeded", "failed", "lost", "cancelled") else None

        found = until(state, WITHIN_S, 0.1)
        assert found["state"] == "succeeded", found["reason"]
        return found

    def downloaded(self, **wish):
        look = until(lambda: self.look(**wish), WITHIN_S, 0.5)
        found = until(lambda: f if (f := self.call(f"/model-looks/{look}"))["ended"] else None, WITHIN_S, 0.1)
        assert found["room"] and found["job"]["state"] == "succeeded", found
        return self.ended(self.call(f"/model-looks/{look}/download", {})["id"])

    def look(self, **wish):
        return self.call("/model-looks", {"server": self.server, **wish})["job"]["id"]

    def model(self, name):
        """The model of that name as REST tells it, when the console has heard of it."""
        rows = until(lambda: [one for one in self.call("/models")["models"] if one["name"] == name], WITHIN_S, 0.1)
        return rows[0]


def test_models_come_in_and_are_listed(console, hub):
    script = Script(console)
    job = script.call("/jobs", {"kind": "sample_model", "server": script.server, "params": {"layers": "2"}})
    script.ended(job["id"])
    assert script.model("sample-qwen2-2")["via"] == "sample"

    script.downloaded(source="huggingface", model="org/tiny")
    found = script.model("tiny")
    assert found["via"] == "downloaded"
    assert TOKEN not in json.dumps(script.call(f"/models/{found['id']}"))

    files = [{"name": name, "size": len(data)} for name, data in sorted(hub.files.items()) if name != "tokenizer.json"]
    upload = script.call("/model-uploads", {"name": "by-hand", "files": files})
    for n, one in enumerate(files):
        send(console, script.token, f"/model-uploads/{upload['id']}/files/{n}?begin=0", hub.files[one["name"]])
    script.downloaded(source="upload", model=upload["id"])
    copies = script.call(f"/models/{found['id']}")
    assert "by-hand" in json.dumps(copies), "the same content, in another folder"


def send(console, token, path, data):
    import urllib.request

    assert len(data) <= model_uploads.PIECE
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{console.url}/api/v1{path}", data, headers, method="PUT")
    with console.open(request, timeout=20) as answer:
        assert json.loads(answer.read())["id"] == urllib.parse.urlsplit(path).path.split("/")[2]
