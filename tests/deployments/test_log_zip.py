"""All that is known of a job or a replica as one file."""

import io
import json
import tracemalloc
import zipfile
import zlib

import pytest
from asgiref.sync import async_to_sync
from auditlog.models import LogEntry

from console.models import ApiToken
from deployments.models import LogChunk, Server, Step
from deployments.services import log_zip
from deployments.services.masking import masked
from monitoring.models import Diagnosis
from tests.deployments.log_rows import attempt, deployment, job, piece, records, replica, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(db):
    server = Server.objects.create(
        name="kp-01", agent_version="1.2", facts={"driver": "25.3.rc1", "os": "openEuler", "password": "f-secret"}
    )
    return job(server, params={"source": "/m", "hf_token": "p-secret", "max_tokens": 7}, state="failed", ticket="T-1")


def opened(parts):
    return zipfile.ZipFile(io.BytesIO(b"".join(parts)))


def streamed(answer):
    async def whole():
        return b"".join([part async for part in answer.streaming_content])

    assert answer.status_code == 200 and answer["Content-Type"] == "application/zip"
    return zipfile.ZipFile(io.BytesIO(async_to_sync(whole)()))


def test_a_job_with_all_its_attempts_and_what_is_known_of_it(run):
    first = stored(attempt(run, 1, state="failed"), records((0, "one"), (1, "two")))
    stored(attempt(run, 2, state="failed", exit_code=3), records((5, "again")))
    Step.objects.create(attempt=first, n=1, title_zh="装", title_en="Install", argv=["pip", "--token", "s-secret"])
    Diagnosis.objects.create(attempt=first, found="x", findings=[{"id": "x", "line": 2}])
    archive = opened(log_zip.of_job(run))
    assert archive.testzip() is None
    assert sorted(archive.namelist()) == [
        "README.md", "diagnosis.json", "job.json", "logs/attempt-1.log", "logs/attempt-2.log", "servers.json",
        "verdict.json", "versions.json",
    ]  # fmt: skip
    assert (
        archive.read("logs/attempt-1.log").decode() == "2025-11-30T10:53:20.000Z\tone\n2025-11-30T10:53:20.001Z\ttwo\n"
    )
    about, verdict = (json.loads(archive.read(name)) for name in ("job.json", "verdict.json"))
    assert about["params"] == {"source": "/m", "hf_token": "***", "max_tokens": 7} and about["ticket"] == "T-1"
    assert [one["exit_code"] for one in verdict["attempts"]] == [None, 3]
    assert verdict["attempts"][0]["steps"][0]["argv"] == ["pip", "--token", "***"]
    assert json.loads(archive.read("diagnosis.json"))[first.pk]["findings"][0]["line"] == 2
    versions = json.loads(archive.read("versions.json"))
    assert versions["console"] and versions["servers"]["kp-01"]["agent"]["version"] == "1.2"
    assert versions["servers"]["kp-01"]["driver"] == "25.3.rc1"
    assert json.loads(archive.read("servers.json"))[0]["facts"]["os"] == "openEuler"
    readme = archive.read("README.md").decode()
    assert "passwords" in readme.lower() and "密码" in readme
    assert not any(b"secret" in archive.read(name) for name in archive.namelist())
    assert run.server.key.encode() not in b"".join(archive.read(name) for name in archive.namelist())


def test_a_job_without_a_run_has_no_logs_and_no_diagnosis(run):
    names = opened(log_zip.of_job(run)).namelist()
    assert "job.json" in names and "diagnosis.json" not in names and not any(name.startswith("logs/") for name in names)


def test_hostile_names_name_no_file(run):
    """Whatever a row holds, names of files are numbers of ours, and what cannot be written is replaced."""
    bad = "../../etc/cron.d/x\r\nSet-Cookie: a=b\"'\u202e\udc80"
    run.kind, run.params, run.ticket, run.reason = bad, {bad: [bad]}, bad, [bad, bad]
    run.server.name, run.server.facts = bad, {"os": bad}
    stored(attempt(run), ["\udcff\udcfe not utf-8", records((0, "../../x"))[0]])
    archive = opened(log_zip.of_job(run))
    assert archive.testzip() is None
    for name in archive.namelist():
        assert ".." not in name and not name.startswith("/") and name.isascii() and name.isprintable()
    assert "�� not utf-8" in archive.read("logs/attempt-1.log").decode()
    assert archive.read("README.md").decode().splitlines()[0].startswith(f"# Job #{run.pk}")
    assert all(json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json"))


def test_a_replica_with_the_pieces_of_all_its_servers(db):
    one, two = (Server.objects.create(name=name) for name in ("kp-1", "kp-2"))
    row = replica(deployment(), 1, one)
    row.revision.settings = {"max_model_len": 4096, "env": {"HF_TOKEN": "e-secret"}, "extra": ["--api-key=q-secret"]}
    for n, server in ((1, one), (2, one), (3, two)):
        stored(piece(row, n, server=server, exit_code=n), records((n, f"start {n}")))
    archive = opened(log_zip.of_replica(row))
    logs = sorted(name for name in archive.namelist() if name.startswith("logs/"))
    assert logs == [f"logs/server-{server}-start-{n}.log" for server, n in ((one.pk, 1), (one.pk, 2), (two.pk, 3))]
    assert b"start 3" in archive.read(logs[2])
    about = json.loads(archive.read("replica.json"))
    assert about["settings"]["env"] == {"HF_TOKEN": "***"} and about["settings"]["extra"] == ["--api-key=***"]
    assert len(json.loads(archive.read("servers.json"))) == 2
    assert len(json.loads(archive.read("verdict.json"))["starts"]) == 3


def test_pages_and_rest_send_the_same_and_it_is_on_the_record(run, client, viewer):
    stored(attempt(run), records((0, "one")))
    stored(piece(replica(deployment(), 1, run.server)), records((0, "engine")))
    token = {"Authorization": f"Bearer {ApiToken.make(viewer, 'viewer')[1]}"}
    for path in (f"/jobs/{run.pk}/zip", "/deployments/tiny/replicas/1/zip"):
        assert client.get(f"/api/v1{path}").status_code == 401
        names = streamed(client.get(f"/api/v1{path}", headers=token)).namelist()
        client.force_login(viewer)
        assert streamed(client.get(path)).namelist() == names
        client.logout()
        assert client.get(path).status_code == 302
    verbs = [entry.additional_data["verb"] for entry in LogEntry.objects.all() if entry.additional_data]
    assert verbs.count("log.downloaded") == 4
    for path in ("/jobs/999999/zip", "/deployments/none/replicas/1/zip", "/deployments/tiny/replicas/9/zip"):
        assert client.get(f"/api/v1{path}", headers=token).status_code == 404


def test_a_long_log_is_sent_as_it_is_read(run):
    """Far more than is held: what is held at once is a chunk, and the first part leaves before the last is read."""
    head = attempt(run)
    lines = "".join(f"1764500000000\to\t{n:060}\n" for n in range(800)).encode()
    data, count = zlib.compress(lines, 1), 60
    LogChunk.objects.bulk_create(LogChunk(attempt=head, first=1 + n * 800, n=800, data=data) for n in range(count))
    head.next_line, head.next_byte = 800 * count + 1, len(lines) * count
    head.save()
    tracemalloc.start()
    size = parts = 0
    for part in log_zip.of_job(run):
        assert len(part) < 1024 * 1024
        size, parts = size + len(part), parts + 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert parts > 1 and len(lines) * count > 3_500_000
    assert peak < 3 * 1024 * 1024


def test_a_log_that_grows_meanwhile_ends_where_it_stood(run):
    head = stored(attempt(run), records((0, "one")))
    archive = log_zip.of_job(run)
    stored(head, records(*[(n, "later") for n in range(30)]))
    assert opened(archive).read("logs/attempt-1.log").decode().count("\n") == 1


@pytest.mark.parametrize("name, value, kept", [
    ("api_key", "abc", "***"), ("HF_TOKEN", "abc", "***"), ("apiKey", "abc", "***"), ("REDIS_PASSWORD", "", ""),
    ("tokenizer", "qwen", "qwen"), ("max_tokens", 4096, 4096), ("served_model_name", "sk", "sk"),
    ("url", "https://u:pw@host/x", "https://u:***@host/x"), ("x", "Bearer abcdefghijk", "Bearer ***"),
    ("x", "use hf_abcdefghijklmnop now", "use *** now"),
    ("credentials", {"user": "u", "what": "w"}, {"user": "***", "what": "***"}),
    ("argv", ["--api-key", "abc", "--port", "1"], ["--api-key", "***", "--port", "1"]),
    ("argv", ["HF_TOKEN=abc", "a=b"], ["HF_TOKEN=***", "a=b"]),
])  # fmt: skip
def test_what_is_a_secret_is_masked_and_nothing_else(name, value, kept):
    assert masked({name: value}) == {name: kept}
