"""Hostile files, servers and people around models: each is refused with a sentence, and harms nobody else's."""

# ruff: noqa: F811 - fixtures of model_site.py

import json
import os
import struct
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from console.errors import ConsoleError
from console.models import ApiToken, User
from deployments.agent.models import signed_http
from deployments.agent.models.other_server import OtherServer
from deployments.artifacts import BadModel, judge, quant_checks, recipes_inside, remove, scan
from deployments.artifacts.judge import Answer
from deployments.artifacts.prompts import Prompt
from deployments.artifacts.read import read
from deployments.models import Artifact, ArtifactPlace, Attempt, Evaluation, Job, Server
from deployments.services import model_uploads, told
from tests.deployments.model_rows import artifact, place
from tests.deployments.model_site import olga, own_var  # noqa: F401
from tests.deployments.models_on_disk import model

PRINT = 'print("\\ud800")'


# ---------- files on servers ----------


@pytest.fixture
def items(tmp_path, monkeypatch):
    monkeypatch.setenv("ASCEND_ITEMS", str(tmp_path / "items"))
    monkeypatch.setenv("ASCEND_STATE", str(tmp_path / "state"))
    return tmp_path / "items"


def scanned(folder, items):
    """{name of the folder: what was told of its model}."""
    assert scan.main([str(folder)]) == 0
    rows = [json.loads(line) for line in items.read_text().splitlines()]
    return {row["data"]["path"].rpartition("/")[2]: row["data"]["model"] for row in rows if row["told"] == "artifact"}


def bare(folder, header=None, **files):
    """A folder with an empty config.json and, where given, a file of weights with that header and no numbers."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    if header is not None:
        raw = json.dumps(header).encode()
        (folder / "a.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw)
    return folder


def test_a_file_of_terabytes_is_not_read_whole(tmp_path, items):
    folder = tmp_path / "m" / "adapter"
    folder.mkdir(parents=True)
    with (folder / "adapter_config.json").open("wb") as file:
        file.truncate(4 * 10**12)
    model(tmp_path / "m" / "whole")
    assert set(scanned(tmp_path / "m", items)) == {"adapter", "whole"}


def test_a_tensor_of_a_million_dimensions_is_no_tensor(tmp_path):
    row = {"dtype": "X", "shape": [10**18] * 300_000, "data_offsets": [0, 0]}
    began = time.process_time()
    found = read(bare(tmp_path / "m", {"t": row}))
    assert "damaged" in [one.code for one in found.problems] and time.process_time() - began < 5


@pytest.mark.parametrize("length", [1 << 63, 10**4000])
def test_a_length_that_no_tensor_has_is_refused(tmp_path, length):
    row = {"dtype": "X", "shape": [length], "data_offsets": [0, 0]}
    assert "damaged" in [one.code for one in read(bare(tmp_path / "m", {"t": row})).problems]


def test_what_is_told_of_a_model_always_travels(tmp_path, items):
    kinds = {f"t{n}": {"dtype": f"X{n}" * 9, "shape": [0], "data_offsets": [0, 0]} for n in range(3000)}
    bare(tmp_path / "m" / "types", kinds)
    shards = json.dumps({"weight_map": {f"t{n}": "模" * 180 + str(n) for n in range(60)}})
    named = bare(tmp_path / "m" / "named", model__safetensors__index__json=shards)
    for n in range(60):
        (named / ("型" * 70 + f"{n}.bin")).write_text("")
    model(tmp_path / "m" / "whole")
    found = scanned(tmp_path / "m", items)
    assert set(found) == {"types", "named", "whole"}
    assert 0 < len(found["named"]["problems"]) < 60 and found["named"]["pickles"]
    assert found["whole"]["problems"] == []


def test_a_folder_that_nobody_can_name_hides_no_other(tmp_path, items, capsys):
    for name in (b"\xff\xfe", b"a\nb\x1b[31m"):
        bare(tmp_path / "m" / os.fsdecode(name))
    model(tmp_path / "m" / "whole")
    assert set(scanned(tmp_path / "m", items)) == {"whole"}
    said = capsys.readouterr().err
    assert said.count("no control characters") == 2 and "\x1b" not in said


def test_a_step_may_print_what_is_no_character(tmp_path):
    from deployments.agent import runner

    source = Path(runner.__file__).read_text(encoding="utf-8")
    (encoding,) = (line.split('"')[3] for line in source.splitlines() if 'env["PYTHONIOENCODING"]' in line)
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", PRINT], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\\ud800\n")


def test_a_thousand_problems_do_not_fill_the_log(tmp_path, items, capsys):
    code = {str(n): f"x{n}.y" for n in range(1000)}
    folder = bare(tmp_path / "m" / "x")
    (folder / "config.json").write_text(json.dumps({"auto_map": code}))
    scanned(tmp_path / "m", items)
    assert len(capsys.readouterr().out) < 10_000


def test_another_folder_put_there_between_the_looks_is_not_deleted(tmp_path, items, monkeypatch):
    folder, other = model(tmp_path / "data" / "m"), model(tmp_path / "data" / "n", config={"vocab_size": 302})
    fingerprint, looked = read(folder).fingerprint, remove.check

    def then_swapped(at, wanted):
        monkeypatch.setattr(remove, "check", looked)
        looked(at, wanted)
        folder.rename(tmp_path / "away")
        other.rename(folder)

    monkeypatch.setattr(remove, "check", then_swapped)
    why = remove.remove(str(folder), fingerprint)
    assert "another content" in why.en and str(folder) in why.en and ".part" not in why.en
    assert read(folder).vocab == 302 and not items.exists()
    assert [one.name for one in folder.parent.iterdir()] == ["m"]


# ---------- recipes and calibration sets ----------


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    return tmp_path / "pipe.jsonl"


def test_a_calibration_set_that_is_a_pipe_or_device_is_refused(tmp_path, pipe):
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    for path in (pipe, tmp_path / "zero.jsonl"):
        with pytest.raises(BadModel, match="cannot be read"):
            quant_checks.calibration_rows(path)


def test_a_recipe_that_is_a_pipe_or_device_is_refused(pipe):
    for path in (pipe, "/dev/zero"):
        with pytest.raises(ValueError, match="no file"):
            recipes_inside.content(path)


def test_a_recipe_that_unfolds_to_gigabytes_stays_small(monkeypatch):
    bomb = "x" * 1000
    for _n in range(12):
        bomb = [bomb] * 10
    meta = {"config_id": bomb, "label": {"w_bit": bomb}, "verified_model_types": [bomb]}
    data = {"apiversion": bomb, "metadata": meta, "spec": {"runner": bomb, "save": [{"type": bomb}]}}
    monkeypatch.setattr(recipes_inside, "load", lambda path: data)
    assert len(json.dumps(recipes_inside.row("/x.yaml"))) < 1000


# ---------- what servers tell ----------


@pytest.fixture
def server(db):
    return Server.objects.create(name="kp-01")


def attempt(server, kind, **params):
    job = Job.objects.create(server=server, kind=kind, params=params, not_after=timezone.now() + timedelta(days=1))
    return Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1)


def of(row, path, **more):
    return {"path": path, "model": {"fingerprint": row if isinstance(row, str) else row.fingerprint}, **more}


def test_an_evaluation_proves_no_other_model_than_it_was_asked_for(server, valkey):
    elsewhere = Server.objects.create(name="kp-02")
    parent, child, others = artifact("p"), artifact("c"), artifact("others")
    place(parent, server, "/d/p"), place(child, server, "/d/c"), place(others, elsewhere, "/d/o")
    run = attempt(server, "evaluate", child="/d/c", parent="/d/p")
    told.hand_over(run, "artifact", of(others, "/d/c"))
    one = judge.compare(Prompt("1", "en", "", "x"), Answer("a", ("a",)), Answer("a", ("a",)))
    told.hand_over(run, "evaluation", {"measured": json.loads(json.dumps(judge.measure([one]).as_json()))})
    others.refresh_from_db()
    assert others.gate is None and Evaluation.objects.get().artifact == child


@pytest.mark.parametrize("kind", ["check", "model_scan", "download"])
def test_only_the_job_that_makes_a_model_says_how_it_came_about(server, valkey, kind):
    parent = artifact("p")
    told.hand_over(attempt(server, kind), "artifact", of("c" * 64, "/d/c", via="quantized", parent=parent.fingerprint))
    row = Artifact.objects.get(fingerprint="c" * 64)
    assert (row.via, row.made_by) == ("found", None)


def test_the_origin_of_what_lies_on_another_server_stays(server, valkey):
    row, parent = artifact("m", via="found"), artifact("p")
    place(row, Server.objects.create(name="kp-02"), "/d/m")
    run = attempt(server, "quantize")
    told.hand_over(run, "artifact", of(row, "/x/m", via="quantized", parent=parent.fingerprint))
    row.refresh_from_db()
    assert (row.via, row.parent, row.made_by) == ("found", None, None)


def test_one_folder_told_of_without_end_makes_one_model(server, valkey):
    run = attempt(server, "model_scan")
    for n in range(30):
        told.hand_over(run, "artifact", of(f"{n:064x}", "/d/m"))
        told.hand_over(run, "artifact_gone", {"path": "/d"})
    assert Artifact.objects.count() == 1
    again = attempt(server, "model_scan")
    told.hand_over(again, "artifact", of("f" * 64, "/d/m"))
    assert ArtifactPlace.objects.get().artifact.fingerprint == "f" * 64


# ---------- copies ----------


def test_a_signature_of_other_letters_is_a_wrong_one():
    key = "ab" * 32
    header = signed_http.sign(key, "/files", "")
    assert signed_http.is_signed(key, header, "/files", "")
    for wrong in (f"{header[:33]}é", "ÿ" * 32 + "." + header[33:], header[:-1], "", ".", f"{'0' * 32}.\ud800"):
        assert not signed_http.is_signed(key, wrong, "/files", "")


def test_an_answer_signed_with_other_letters_is_not_the_other_end(monkeypatch):
    class Hostile:
        def header(self, name):
            return "é" * 64

        def read_all(self):
            return b"[]"

        def close(self):
            pass

    source = OtherServer("http://127.0.0.1:1", "ab" * 32, "/m")
    monkeypatch.setattr(source, "_open", lambda path, headers: Hostile())
    with pytest.raises(BadModel, match="not the other end"):
        source.files()


# ---------- uploads ----------


@pytest.mark.django_db
def test_nobody_sends_pieces_of_the_upload_of_somebody_else(olga, own_var):
    mike = User.objects.create_user("mike", role="operator")
    upload = model_uploads.begin("m", [("config.json", 2)], by=olga)
    for by in (mike, User.objects.create_user("ada", role="administrator")):
        with pytest.raises(ConsoleError) as refusal:
            model_uploads.put(upload, 0, 0, b"{}", by=by)
        assert refusal.value.code == "not_yours"
    assert model_uploads.put(upload, 0, 0, b"{}", by=olga).is_whole


@pytest.mark.django_db
def test_two_that_begin_at_once_do_not_both_take_the_last_room(olga, own_var, settings, monkeypatch):
    settings.MODEL_UPLOAD_GB = 1
    monkeypatch.setattr(model_uploads.audit, "record", lambda *words, **more: None)
    real = model_uploads._check_room

    def slow(wanted):
        real(wanted)
        time.sleep(0.2)

    monkeypatch.setattr(model_uploads, "_check_room", slow)
    refused = []

    def begin(name):
        try:
            model_uploads.begin(name, [("config.json", 600_000_000)], by=olga)
        except ConsoleError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=begin, args=(name,)) for name in ("a", "b")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert refused == ["upload_quota"] and len(model_uploads.present()) == 1


# ---------- who may ----------

ID = "0123456789abcdef"
PAGES = (
    "models/1/edit", "models/scan", "models/copies/1/delete", "models/download/", "models/copy/", "models/uploads/",
    f"models/uploads/{ID}/0/0", f"models/uploads/{ID}/delete", "models/evaluate", "models/1/promote",
    "models/quantize",
)  # fmt: skip


def test_whoever_only_looks_changes_nothing_of_models(client, server, valkey):
    row = artifact("m", pk=1, gate={"passed": False, "job": 1})
    place(row, server, pk=1)
    client.force_login(User.objects.create_user("vera", role="viewer"))
    for page in PAGES:
        status = client.post(f"/{page}", {"server": "kp-01", "reason": "x"}).status_code
        assert status == 403 or page.endswith("/promote"), page  # that one answers with its page and the reason
    row.refresh_from_db()
    assert not Job.objects.exists() and not model_uploads.present() and "promoted" not in row.gate


def test_a_lesser_token_of_an_administrator_promotes_nothing(client, server, valkey):
    row = artifact("m", gate={"passed": False, "job": 1})
    ada = User.objects.create_user("ada", role="administrator")
    for role, status in (("viewer", 403), ("operator", 403), ("administrator", 200)):
        _token, text = ApiToken.make(ada, role)
        answer = client.post(
            f"/api/v1/models/{row.pk}/promotion", {"reason": "x"}, content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {text}",
        )  # fmt: skip
        assert answer.status_code == status, answer.content


def test_another_site_starts_nothing_of_models(olga, server, valkey):
    client = Client(enforce_csrf_checks=True)
    client.force_login(olga)
    place(artifact("m", pk=1), server, pk=1)
    for page in PAGES:
        assert client.post(f"/{page}", {"server": "kp-01"}).status_code == 403, page
    assert not Job.objects.exists() and not model_uploads.present()
