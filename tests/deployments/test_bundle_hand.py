"""What is put into a bundle by hand, what an import waits for, and where a bundle fits."""

import http.client
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone, translation

from console.errors import Conflict
from console.models import User
from deployments import locks
from deployments.agent import pages, wheels
from deployments.agent.pages import Stopped
from deployments.models import Job, JobState, Server
from deployments.services import bundle_add, bundle_import, installs, jobs, stacks, wheel_bundles
from deployments.stacks import bundles
from deployments.stacks.bundles import MANIFEST, BadBundle
from tests.deployments import tiny_wheels
from tests.deployments.agent_bench import AgentServer
from tests.deployments.stack_facts import facts

STACK = "vllm-ascend-0.23.0"
TOOLKIT = "Ascend-cann-toolkit_9.1.0_linux-aarch64.run"
OPS = "Ascend-cann-910b-ops_9.1.0_linux-aarch64.run"
NNAL = "Ascend-cann-nnal_9.1.0_linux-aarch64.run"
RUN = b"#!/bin/bash\n" + bytes(range(256)) * 800  # 200 kB
PAIRED = {"driver": "25.5.2", "firmware": "7.8.0.6.201", "firmware_range": ["7.0.0–7.9.99"]}


@pytest.fixture(autouse=True)
def in_english(settings, tmp_path):
    settings.VAR_DIR = tmp_path / "var"
    with translation.override("en"):
        yield


@pytest.fixture(scope="module")
def lacking(tmp_path_factory):
    """What bundle make leaves where one package cannot be had, triton-ascend: its folder."""
    house, out = tmp_path_factory.mktemp("house"), tmp_path_factory.mktemp("out")
    tiny_wheels.make(house, {name: row for name, row in tiny_wheels.NPU_FILES.items() if name != "triton_ascend"})
    words = ["--arch", "aarch64", "--python", "3.12", "--wheels", str(house), "--no-index", "--split", "64K"]
    with pytest.raises(CommandError, match="is not complete: 1 of its packages could not be had"):
        call_command("bundle", "make", STACK, "--out", str(out), *words)
    (folder,) = out.iterdir()
    return folder


@pytest.fixture
def made(lacking, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(lacking, tmp_path / "out" / lacking.name))


@pytest.fixture
def disc(tmp_path):
    """A folder with what was downloaded by hand, and something else."""
    folder = tmp_path / "disc"
    folder.mkdir()
    for name in (TOOLKIT.lower(), OPS, NNAL):  # a web server may have changed the case of names
        (folder / name).write_bytes(RUN + name.encode())
    (folder / "readme.txt").write_text("x")
    tiny_wheels.make(folder, {"triton_ascend": tiny_wheels.NPU_FILES["triton_ascend"]})
    return folder


def manifest_of(folder):
    return bundles.read_manifest(bundles.manifest_in(folder))


def test_what_is_missing_is_listed_and_everything_else_came(made, capsys):
    manifest = manifest_of(made)
    assert {row["requirement"] for row in manifest["missing"]} == {"triton-ascend==3.2.2"}
    assert len(manifest["files"]) == 7 and not any("triton" in name for name in manifest["files"])
    assert manifest["vendor"][OPS] == {"chips": ["A2"], "size": None, "sha256": None, "parts": {}}
    with pytest.raises(CommandError, match="is not complete"):
        call_command("bundle", "check", str(made))
    assert "missing: triton-ascend==3.2.2 (the index has no wheel of it that fits)" in capsys.readouterr().out


@pytest.mark.django_db
def test_wheels_and_packages_are_put_in_by_hand_and_kept(made, disc, capsys):
    with pytest.raises(CommandError, match=r"triton-ascend==3.2.2 could not be had"):
        call_command("bundle", "import", str(made))
    call_command("bundle", "add", str(made), str(disc))
    said = capsys.readouterr().out
    assert "triton_ascend-3.2.2-py3-none-any.whl: meets triton-ascend==3.2.2" in said
    assert "not put in: Ascend-cann-A3-ops_9.1.0_linux-aarch64.run (for A3)" in said and "missing:" not in said
    manifest = bundles.check(made)
    assert len(manifest["files"]) == 8 and not manifest["missing"]
    assert len(manifest["vendor"][TOOLKIT]["parts"]) == 4  # of 64 kB
    kept = bundle_import.bring_in(made, lambda _line: None)
    assert sorted(kept.package_names) == sorted([TOOLKIT, OPS, NNAL])
    assert (kept.packages / TOOLKIT).read_bytes() == RUN + TOOLKIT.lower().encode()
    (kept.packages / OPS).write_bytes(b"x")
    with pytest.raises(CommandError, match=f"{OPS} in .* is damaged"):
        call_command("bundle", "check", made.name)


def harm_part(folder, _disc):
    path = min(folder.glob("vendor-*-002"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def lose_part(folder, _disc):
    min(folder.glob("vendor-*-002")).unlink()


def other_digest(folder, _disc):
    data = json.loads((folder / MANIFEST).read_text())
    data["vendor"][TOOLKIT]["sha256"] = "0" * 64
    (folder / MANIFEST).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("harm", "said"),
    [(harm_part, r"vendor-\d\d-002 is damaged"), (lose_part, r"vendor-\d\d-002 is missing"),
     (other_digest, "toolkit.* in it has another digest")],
)  # fmt: skip
@pytest.mark.django_db
def test_a_package_that_is_not_whole_is_named_and_nothing_is_kept(made, disc, harm, said):
    bundle_add.add(made, [disc], lambda _line: None)
    harm(made, disc)
    for tried in (bundles.check, bundle_import.bring_in):
        with pytest.raises(BadBundle, match=said):
            tried(made)
    assert wheel_bundles.present() == []


def test_what_does_not_belong_into_it_is_refused_and_changes_nothing(made, disc, tmp_path):
    before = (made / MANIFEST).read_bytes()
    page = tmp_path / TOOLKIT
    page.write_text("<html>Please sign in</html>")
    other = tmp_path / "triton_ascend-3.2.2-cp312-cp312-manylinux_2_28_x86_64.whl"
    shutil.copyfile(disc / "triton_ascend-3.2.2-py3-none-any.whl", other)
    broken = tmp_path / "triton_ascend-3.2.2-py3-none-any.whl"
    broken.write_bytes(b"half")
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, said in (
        (page, "is no installer"), (disc / "readme.txt", "is none of what the bundle wants"), (empty, "nothing in it"),
        (other, "is not for aarch64 with Python 3.12"), (broken, "is no whole wheel"), (tmp_path / "no", "no file"),
    ):  # fmt: skip
        with pytest.raises(BadBundle, match=said):
            bundle_add.add(made, [path])
    assert (made / MANIFEST).read_bytes() == before and bundles.check(made)["missing"]


def test_a_digest_that_the_manifest_names_before_is_held_to(made, disc):
    data = json.loads((made / MANIFEST).read_text())
    data["vendor"][OPS] = {"chips": ["A2"], "size": len(RUN) + len(OPS), "sha256": "0" * 64}
    (made / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(BadBundle, match="is damaged: its digest is not the one in the manifest"):
        bundle_add.add(made, [disc / OPS])
    data["vendor"][OPS]["size"] += 1
    (made / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(BadBundle, match="it was cut off"):
        bundle_add.add(made, [disc / OPS])


# ---------- an import beside something else ----------


@pytest.fixture
def kept(made, disc, db):
    bundle_add.add(made, [disc], lambda _line: None)
    return bundle_import.bring_in(made, lambda _line: None)


@pytest.fixture
def server(db):
    told = facts("A2", **PAIRED, stacks_root="/srv/agent/stacks", stack_current="", stack_before="")
    return Server.objects.create(name="kp-1", family="910B3", facts=told, last_seen_at=timezone.now())


@pytest.mark.usefixtures("valkey")
def test_an_import_beside_a_job_that_installs_from_it_is_refused(kept, made, server):
    job = jobs.queue_job(
        server, "install", {"stack": STACK, "bundle": kept.name}, by=User.objects.create_user("li", role="operator")
    )
    changed = json.loads((made / MANIFEST).read_text()) | {"made": "later"}
    (made / MANIFEST).write_text(json.dumps(changed))
    for state in (JobState.QUEUED, JobState.DRAFT, JobState.WAITING_APPROVAL):  # the latter two of a campaign
        Job.objects.update(state=state)
        for words in (["import", str(made)], ["remove", kept.name]):
            with pytest.raises(CommandError, match=f"Jobs install from the bundle .*#{job.pk} .kp-1"):
                call_command("bundle", *words)
    assert wheel_bundles.find(kept.name).digest == kept.digest
    Job.objects.update(state=JobState.SUCCEEDED)
    assert bundle_import.bring_in(made, lambda _line: None).digest != kept.digest


def test_two_imports_at_once_are_refused(kept, made):
    lock = locks.take_lock(wheel_bundles.folder().with_name("bundles.lock"))
    assert lock is not None
    with pytest.raises(Conflict, match="being imported"):
        bundle_import.bring_in(made)


# ---------- where it fits ----------


@pytest.mark.parametrize(
    ("told", "stack", "said"),
    [
        ({"arch": "x86_64"}, STACK, "is for aarch64, and kp-1 is x86_64"),
        ({"python": "3.11.7"}, STACK, "is for Python 3.12, and kp-1 has: 3.11.7"),
        ({}, "vllm-ascend-0.18.0", "is one of vllm-ascend-0.23.0"),
    ],
)
def test_a_bundle_for_another_server_is_refused(kept, server, told, stack, said):
    server.facts |= told
    with pytest.raises(Conflict, match=said):
        installs.options_for(server, {"bundle": kept.name}, stacks.find(stack))


def test_a_bundle_whose_wheels_need_a_newer_glibc_is_refused(kept, server, monkeypatch):
    for least, refused in (("2.39", True), ("2.38", False), ("", False)):
        monkeypatch.setattr(wheel_bundles.Kept, "glibc", least)
        if refused:
            with pytest.raises(Conflict, match=r"need glibc 2\.39, and kp-1 has 2\.38") as told:
                installs.options_for(server, {"bundle": kept.name}, stacks.find(STACK))
            assert "--glibc 2.38" in told.value.do
        else:
            assert installs.options_for(server, {"bundle": kept.name}, stacks.find(STACK)).python == "3.12.7"


def test_the_plan_fetches_what_the_bundle_holds_and_asks_for_nothing_by_hand(kept, server):
    stack = stacks.find(STACK)
    found = installs.plan_of(server, stack, installs.options_for(server, {"bundle": kept.name}, stack))
    assert found.files == () and found.addresses == () and not found.gaps
    own = f"/srv/agent/stacks/{STACK}/packages"
    fetch = next(step for step in found.steps if step.key == "packages_fetch")
    assert fetch.argv[2:] == ("deployments.agent.wheels", kept.name, kept.digest, own, TOOLKIT, OPS, NNAL)
    keys = [step.key for step in found.steps]
    assert keys.index("packages_fetch") < keys.index("check_toolkit")
    assert next(step for step in found.steps if step.key == "toolkit").argv[1] == f"{own}/{TOOLKIT}"
    server.is_local = True
    near = installs.plan_of(server, stack, installs.options_for(server, {"bundle": kept.name}, stack))
    assert next(step for step in near.steps if step.key == "toolkit").argv[1] == f"{kept.packages}/{TOOLKIT}"
    assert "packages_fetch" not in [step.key for step in near.steps] and near.files == ()
    by_hand = installs.plan_of(server, stack, installs.options_for(server, {}, stack))
    assert f"/opt/ascend-console/packages/{TOOLKIT}" in by_hand.files


@pytest.fixture
def agent(tmp_path, kept, monkeypatch):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    monkeypatch.setattr(pages, "ask", lambda _config, op, *, bundle, file: io.BytesIO(
        wheel_bundles.file_of(bundle, file).read_bytes()))  # fmt: skip
    yield made
    made.close()


def test_servers_fetch_the_packages_that_they_are_told(agent, kept, tmp_path):
    folder = tmp_path / "packages"
    wheels.fetch_all(agent.config, kept.name, kept.digest, folder, [TOOLKIT, OPS])
    assert sorted(path.name for path in folder.iterdir()) == sorted([TOOLKIT, OPS])
    with pytest.raises(Stopped, match="cannot be used"):
        wheels.fetch_all(agent.config, kept.name, kept.digest, folder, ["Ascend-cann-other.run"])


@pytest.mark.parametrize(
    "error", [TimeoutError("timed out"), ConnectionResetError("reset"), http.client.IncompleteRead(b"")]
)
def test_a_manifest_that_is_cut_off_on_its_way_is_said_in_words(agent, kept, tmp_path, monkeypatch, error):
    def cut(_most):
        raise error

    monkeypatch.setattr(pages, "ask", lambda *_words, **_more: SimpleNamespace(read=cut))
    with pytest.raises(Stopped, match="did not come whole"):
        wheels.fetch_all(agent.config, kept.name, kept.digest, tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_a_servers_disk_that_is_too_small_is_said_before_anything_is_fetched(agent, kept, tmp_path, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(wheels.shutil, "disk_usage", lambda _path: usage._replace(free=1 << 20))
    with pytest.raises(Stopped, match="The disk is too small: 1 MB are free"):
        wheels.fetch_all(agent.config, kept.name, kept.digest, tmp_path / "w")
    assert list((tmp_path / "w").iterdir()) == []
