"""What jobs tell of models becomes rows; what a server makes up does no harm."""

import json
import os
import subprocess
import sys

import pytest
from django.utils import timezone

from deployments import ingest
from deployments.agent.items import MAX_TOLD, item
from deployments.artifacts import scan, tell
from deployments.artifacts.read import read
from deployments.kinds import model_scan
from deployments.models import Artifact, ArtifactPlace, Attempt, Server
from deployments.services import told
from tests.deployments.models_on_disk import model


@pytest.fixture
def data(tmp_path):
    return {"path": "/data/m", "via": "found", "model": read(model(tmp_path / "m")).as_json()}


def test_a_scan_tells_of_every_model_below_a_folder(tmp_path, attempt, spool):
    model(tmp_path / "院" / "a")
    model(tmp_path / "b", config={"vocab_size": 302})
    model(tmp_path / ".half.part")
    (tmp_path / "empty" / "config.json").mkdir(parents=True)
    (tmp_path / "round").symlink_to(tmp_path)
    params = model_scan.Params(str(tmp_path), digests=True)
    (step,) = model_scan.steps(params)
    env = {**os.environ, "ASCEND_ITEMS": str(tmp_path / "items"), "ASCEND_STATE": str(tmp_path / "state")}
    done = subprocess.run([sys.executable, *step.argv[1:]], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/empty holds no config.json" in done.stderr
    fields = [item(line) for line in (tmp_path / "items").read_bytes().splitlines()]
    assert [one["told"] for one in fields] == ["artifact", "artifact", "scan_done"]
    chunk = spool.chunk(*(("v", json.dumps({"e": "told", **one})) for one in fields))
    ingest.store({attempt.job.server_id: [chunk]})
    assert {row.path: row.artifact.name for row in ArtifactPlace.objects.all()} == {
        f"{tmp_path}/b": "b", f"{tmp_path}/院/a": "a",
    }  # fmt: skip
    row = Artifact.objects.get(name="a")
    assert row.summary["layers"] == 3 and row.bytes > 0 and len(row.digest) == 64 and row.via == "found"
    assert row.made_by is None and all(
        place.whole and place.job == attempt.job for place in ArtifactPlace.objects.all()
    )


def test_what_is_gone_is_known_after_the_next_scan(attempt, data):
    told.hand_over(attempt, "artifact", data)
    told.hand_over(attempt, "artifact", {**data, "path": "/other/m"})
    later = Attempt.objects.create(pk="later", job=type(attempt.job).objects.create(
        server=attempt.job.server, kind="model_scan", not_after=attempt.job.not_after), n=1)  # fmt: skip
    told.hand_over(later, "scan_done", {"path": "/data"})
    assert set(ArtifactPlace.objects.filter(gone_at=None).values_list("path", flat=True)) == {"/other/m"}
    told.hand_over(later, "artifact", data)
    assert ArtifactPlace.objects.filter(gone_at=None).count() == 2
    told.hand_over(later, "artifact_gone", {"path": "/other"})
    assert ArtifactPlace.objects.get(path="/other/m").gone_at and Artifact.objects.count() == 1


def look_sent_at(attempt, sent_at):
    job = type(attempt.job).objects.create(
        server=attempt.job.server, kind="model_scan", not_after=attempt.job.not_after
    )
    return Attempt.objects.create(pk="look", job=job, n=1, pushed_at=sent_at)


def lying():
    return set(ArtifactPlace.objects.filter(gone_at=None).values_list("path", flat=True))


def test_what_came_while_a_scan_ran_is_not_gone(attempt, data):
    told.hand_over(attempt, "artifact", {**data, "path": "/data/old"})
    look = look_sent_at(attempt, timezone.now())
    told.hand_over(attempt, "artifact", {**data, "path": "/data/new"})
    told.hand_over(look, "scan_done", {"path": "/data"})
    assert lying() == {"/data/new"}


def test_a_scan_says_nothing_of_where_it_does_not_look(attempt, data):
    deepest, deeper = "/data/" + "/".join("1234"), "/data/" + "/".join("12345")
    for path in (deepest, deeper, "/data/m", "/data/m/original"):
        told.hand_over(attempt, "artifact", {**data, "path": path})
    look = look_sent_at(attempt, timezone.now())
    told.hand_over(look, "artifact", {**data, "path": "/data/m"})
    told.hand_over(look, "scan_done", {"path": "/data"})
    assert lying() == {deeper, "/data/m", "/data/m/original"}


def test_a_copy_elsewhere_is_the_same_artifact_and_keeps_its_history(attempt, data):
    parent = Artifact.objects.create(name="float", fingerprint="b" * 64, format="hf")
    attempt.job.kind = "quantize"
    told.hand_over(attempt, "artifact", {**data, "via": "quantized", "parent": "b" * 64})
    other = Server.objects.create(name="kp-02")
    attempt.job.server = other
    told.hand_over(attempt, "artifact", {**data, "path": "/srv/copy", "digest": "d" * 64})
    row = Artifact.objects.exclude(pk=parent.pk).get()
    assert (row.via, row.parent, row.made_by, row.digest) == ("quantized", parent, attempt.job, "d" * 64)
    assert {place.server.name for place in row.places.all()} == {"kp-01", "kp-02"}


def test_the_origin_of_what_was_only_found_is_filled_in(attempt, data):
    told.hand_over(attempt, "artifact", data)
    attempt.job.kind = "download"
    told.hand_over(attempt, "artifact", {**data, "via": "downloaded", "source": "https://hub.example/x"})
    told.hand_over(attempt, "artifact", {**data, "via": "sample"})
    row = Artifact.objects.get()
    assert (row.via, row.made_by, row.source) == ("downloaded", attempt.job, "https://hub.example/x")


@pytest.mark.parametrize(
    "hostile",
    [
        {}, {"path": "/data/m"}, {"path": "/data/m", "model": {}}, {"path": "../x", "model": {"fingerprint": "a" * 64}},
        {"path": "/data/m", "model": {"fingerprint": "A" * 64}}, {"path": 3, "model": {"fingerprint": "a" * 64}},
        {"path": "/etc/x", "model": {"fingerprint": "a" * 64}},
    ],
)  # fmt: skip
def test_what_makes_no_artifact_makes_no_row(attempt, hostile, caplog):
    told.hand_over(attempt, "artifact", hostile)
    told.hand_over(attempt, "never heard of", hostile)
    assert not Artifact.objects.exists() and not ArtifactPlace.objects.exists()


def test_hostile_values_are_bounded(attempt, spool):
    big = {
        "fingerprint": "a" * 64, "name": "<b>\ud800" * 200, "format": "exe", "bytes": -5, "layers": 10**30,
        "architecture": ["x"], "tied": "yes", "pickles": [1, "x" * 900] * 9, "problems": [[1, 2, 3], ["c", ["z"], 0]],
        "parameters": True,
    }  # fmt: skip
    line = json.dumps({"told": "artifact", "data": {"path": "/data/模型", "model": big, "parent": "a" * 64}})
    fields = item(line.encode())
    ingest.store({attempt.job.server_id: [spool.event(e="told", **fields)]})
    row = Artifact.objects.get()
    assert row.format == "unknown" and row.bytes == 0 and row.summary["layers"] is None and row.parent is None
    assert row.summary["tied"] is False and row.summary["parameters"] is None and row.summary["architecture"] == ""
    assert len(row.name) == 200 and row.summary["pickles"] and all(len(name) <= 200 for name in row.summary["pickles"])
    assert ArtifactPlace.objects.get().problems == []


def test_a_handler_that_fails_stops_nobody(attempt, spool, monkeypatch, caplog):
    def broken(attempt, data):
        Artifact.objects.create(name="half", fingerprint="c" * 64)
        raise RuntimeError("no")

    monkeypatch.setitem(told.HANDLERS, "artifact", broken)
    ingest.store({attempt.job.server_id: [spool.event(e="told", told="artifact", data={})]})
    attempt.refresh_from_db()
    assert attempt.next_line == 2 and not Artifact.objects.exists() and "could not be taken" in caplog.text


def test_what_is_too_long_to_travel_is_said_where_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("ASCEND_ITEMS", str(tmp_path / "items"))
    with pytest.raises(ValueError, match="can travel"):
        tell.tell("artifact", {"x": "y" * tell.MOST_BYTES})
    assert not (tmp_path / "items").exists()
    tell.tell("artifact", {"x": "\ud800"})
    assert item((tmp_path / "items").read_bytes().rstrip())["data"] == {"x": "?"}
    assert isinstance(item(json.dumps({"told": "x", "data": {"y": "z" * MAX_TOLD}}).encode()), str)


def test_known_folders_that_are_gone_are_told_so(tmp_path, monkeypatch):
    model(tmp_path / "a")
    items = tmp_path / "items"
    monkeypatch.setenv("ASCEND_ITEMS", str(items))
    assert scan.main(["--known", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    told_of = [json.loads(line) for line in items.read_text().splitlines()]
    assert [one["told"] for one in told_of] == ["artifact", "scan_done", "artifact_gone"]
    assert told_of[2]["data"] == {"path": str(tmp_path / "b")}
    assert scan.main([str(tmp_path / "b")]) == 1  # typed by somebody: most likely a mistake
    assert scan.main(["--known", "--", str(tmp_path / "a"), "/unmounted/share/m"]) == 1  # the share may come back
    assert len(items.read_text().splitlines()) == 5


def test_pages_hear_once_of_much(attempt, data, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks() as callbacks:
        for n in range(5):
            told.hand_over(attempt, "artifact", {**data, "path": f"/data/{n}"})
        told.hand_over(attempt, "artifact_gone", {"path": "/data/1"})
    assert len(callbacks) == 1
    assert Artifact.objects.get().summary["dtypes"] == data["model"]["dtypes"] != {}
