"""What may be cleaned up is found, counted and taken away; what is in use, a link or another's stays."""

import json
import os
import time
from pathlib import Path

import pytest

from deployments import kinds
from deployments.agent import spool
from deployments.agent.cleanup import __main__ as program
from deployments.agent.cleanup import holders, images, places, removing
from deployments.agent.cleanup.measure import measure
from deployments.agent.config import load
from deployments.artifacts import target
from deployments.kinds import cleanup, cleanup_look, quantize
from deployments.steps import PYTHON
from tests.deployments.check_bench import FileHost

OLD = time.time() - 30 * 24 * 3600
STACKS = "/opt/ascend-console/stacks"
PLOG = "/root/ascend/log/debug/plog"


class Server:
    """A simulated server's root and its agent's state folder, both below one folder; everything in it is old."""

    def __init__(self, folder, monkeypatch):
        self.root, self.state = folder / "root", folder / "state"
        self.state.mkdir(parents=True)
        self.root.mkdir()
        self.config = folder / "config.json"
        self.config.write_text(
            json.dumps(
                {"server_id": 1, "name": "kp-01", "redis_url": "redis://127.0.0.1:9/0", "prefix": "h:1",
                 "key": "ab" * 16, "state_dir": str(self.state), "simulated": True,
                 "env": {"ASCEND_ROOT": str(self.root)}}
            )
        )  # fmt: skip
        self.items = folder / "items"
        monkeypatch.setenv("ASCEND_CONFIG", str(self.config))
        monkeypatch.setenv("ASCEND_ITEMS", str(self.items))
        monkeypatch.setenv("ASCEND_REASON", str(folder / "reason"))

    def write(self, path, size=5000, at=OLD):
        full = self.root / path.lstrip("/")
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(b"x" * size)
        os.utime(full, (at, at))
        return full

    def stack(self, name, link=""):
        self.write(f"{STACKS}/{name}/activate")
        self.write(f"{STACKS}/{name}/venv/lib/python3.11/site-packages/torch/lib.so", 20_000)
        if link:
            (self.root / f"{STACKS}/{link}".lstrip("/")).symlink_to(name)
        return self.root / f"{STACKS}/{name}".lstrip("/")

    def run(self, *arguments):
        self.items.write_text("")
        code = program.main(list(arguments))
        return code, [json.loads(line) for line in self.items.read_text().splitlines()]

    def look(self):
        """{target or path: item}."""
        code, items = self.run("look")
        assert code == 0
        return {item["job"]["params"]["targets"][0] if item["job"] else item["title"][0]: item for item in items}

    def remove(self, *targets, seen=None):
        code, items = self.run("--seen", str(int(seen or time.time())), "remove", "--", *targets)
        return code, {item["title"][0]: item for item in items}


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "ENGINES", ())
    return Server(tmp_path, monkeypatch)


# ---------- the kinds ----------


def test_both_are_kinds_with_pages_of_their_own():
    assert {"cleanup", "cleanup_look"} <= set(kinds.names()) - set(kinds.offered())


def test_a_look_holds_nothing_and_changes_nothing():
    params = cleanup_look.Params()
    (step,) = cleanup_look.steps(params)
    assert step.argv == [PYTHON, "-m", "deployments.agent.cleanup", "look"]
    assert (cleanup_look.locks(params), cleanup_look.undo(params)) == ([], [])


@pytest.mark.parametrize(
    ("targets", "lock"),
    [(["plog:/a"], "cleanup"), (["plog:/a", f"stacks:{STACKS}/x"], "stack"), (["downloads:/models/a.part"], "stack"),
     (["images:docker/quay.io/ascend/vllm-ascend:v0.23.0"], "stack")],
)  # fmt: skip
def test_a_clean_up_of_what_installations_make_is_held_like_them(targets, lock):
    assert cleanup.locks(cleanup.Params(targets)) == [lock]


def test_the_half_of_a_model_is_held_as_by_the_job_that_makes_it():
    making = quantize.Params(model="/data/m", target="/data/院 8/", model_type="Q")
    half = str(target.part_of(Path("/data/院 8")))
    found = cleanup.locks(cleanup.Params(["downloads:/data/.part", "downloads:/x/a.incomplete", f"downloads:{half}"]))
    assert found == ["stack", *quantize.locks(making)]
    assert target.whole_of(half) == "/data/院 8"


def test_a_clean_up_names_each_target_once():
    (step,) = cleanup.steps(cleanup.Params(["plog:/a", "--seen=1", "plog:/a"], seen=77))
    assert step.argv[3:] == ["--seen", "77", "remove", "--", "plog:/a", "--seen=1"]


# ---------- what is found ----------


def test_a_look_tells_sizes_and_last_use_and_changes_nothing(server):
    server.write(f"{PLOG}/plog-999999999_20260101.log", 8000)
    server.write("/root/ascend/log/run/device-3/device-999999999_1.log", 100)
    before = sorted(path for path in server.root.rglob("*"))
    found = server.look()
    item = found[f"plog:{PLOG}"]
    assert int(item["found"].split("(")[1].split(" ")[0]) >= 8000 and item["found"].endswith(" B), 1")
    assert item["wanted"].startswith(time.strftime("%Y-%m-%dT", time.gmtime(OLD)))
    assert "plog:/root/ascend/log/run/device-3" in found
    assert sorted(path for path in server.root.rglob("*")) == before


def test_stacks_that_are_in_use_or_were_before_are_not_offered(server):
    for name, link in (("one", "current"), ("two", "before"), ("three", ""), (".gone-four-1", "")):
        server.stack(name, link)
    server.write(f"{STACKS}/smoke-model/config.json")  # is no stack
    assert {name for name in server.look() if name.startswith("stacks:")} == {
        f"stacks:{STACKS}/three",
        f"stacks:{STACKS}/.gone-four-1",
    }


def test_half_downloads_of_wheels_models_and_code_are_found(server):
    server.write(f"{STACKS}/one/wheels/.torch.whl.new")
    server.write(f"{STACKS}/one/wheels/vllm.whl")
    server.write("/models/qwen/.cache/huggingface/download/model-1.safetensors.abc.incomplete")
    server.write("/models/qwen/._____temp/model-2.safetensors")
    server.write("/models/qwen/model-3.safetensors")
    left = server.state / "code/.new-0123456789abcdef/lib/a.py"
    left.parent.mkdir(parents=True)
    left.write_text("x")
    os.utime(left, (OLD, OLD))
    assert {name for name in server.look() if name.startswith("downloads:")} == {
        f"downloads:{STACKS}/one/wheels/.torch.whl.new",
        "downloads:/models/qwen/.cache/huggingface/download/model-1.safetensors.abc.incomplete",
        "downloads:/models/qwen/._____temp",
        f"downloads:{server.state}/code/.new-0123456789abcdef",
    }


def test_links_are_neither_followed_nor_offered(server, tmp_path):
    elsewhere = tmp_path / "elsewhere/debug/plog"
    elsewhere.mkdir(parents=True)
    (elsewhere / "plog-1_1.log").write_text("theirs")
    (server.root / "root/ascend").mkdir(parents=True)
    (server.root / "root/ascend/log").symlink_to(tmp_path / "elsewhere")
    stacks = server.stack("one", "current").parent
    (stacks / "linked").symlink_to(tmp_path / "elsewhere")
    (server.root / "models").mkdir()
    (server.root / "models/a.incomplete").symlink_to(elsewhere / "plog-1_1.log")
    assert server.look() == {}


def test_what_a_process_holds_open_is_shown_and_not_offered(server):
    folder = server.stack("three")
    file = server.write("/models/a.part")
    with file.open("rb"):
        child = os.fork()
        if not child:  # another process: our own does not count
            time.sleep(60)
            os._exit(0)
        try:
            found = server.look()
            assert f"stacks:{STACKS}/three" in found and found["/models/a.part"]["verdict"] == "unknown"
            assert f"pid {child}" in found["/models/a.part"]["remedy"][1]
            code, done = server.remove("downloads:/models/a.part", f"stacks:{STACKS}/three")
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert code == 1 and file.exists() and not folder.exists()
    assert (done["/models/a.part"]["verdict"], done[f"{STACKS}/three"]["verdict"]) == ("failed", "ok")


def test_what_changed_only_just_now_counts_as_in_use(server):
    server.write("/models/a.part", at=time.time())
    assert server.look()["/models/a.part"]["verdict"] == "unknown"
    assert server.remove("downloads:/models/a.part")[0] == 1


def test_what_belongs_to_others_is_shown_with_the_command(server, monkeypatch):
    server.write("/models/it's/a.part")
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    item = server.look()["/models/it's/a.part"]
    assert item["job"] is None
    assert """rm -r -- '/models/it'"'"'s/a.part'""" in item["remedy"][1]
    server.write(f"{PLOG}/plog-999999999_1.log")
    assert f"find {PLOG} -xdev -type f -mmin +10 -delete" in server.look()[PLOG]["remedy"][1]


# ---------- what is taken away ----------


def test_exactly_what_was_ticked_goes_and_the_freed_bytes_are_told(server):
    kept, gone = server.stack("kept"), server.stack("three")
    size = measure(gone).bytes
    log = server.write(f"{PLOG}/plog-999999999_1.log")
    code, done = server.remove(f"stacks:{STACKS}/three")
    assert code == 0 and not gone.exists() and kept.is_dir() and log.exists()
    assert [path.name for path in gone.parent.iterdir()] == ["kept"]
    freed = int(done["total"]["found"].split("(")[1].split(" ")[0])
    assert 0 < freed <= size


def test_of_logs_the_files_go_and_the_folder_stays(server):
    old = server.write(f"{PLOG}/plog-999999999_1.log")
    nested = server.write(f"{PLOG}/device-0/device-999999999_1.log")
    mine = server.write(f"{PLOG}/plog-{os.getpid()}_1.log")  # its process lives
    late = server.write(f"{PLOG}/plog-999999998_1.log", at=time.time())
    code, done = server.remove(f"plog:{PLOG}")
    assert code == 0
    assert [path.exists() for path in (old, nested, nested.parent, mine, late)] == [False, False, False, True, True]
    assert done[PLOG]["verdict"] == "warning" and "2 stayed" in done[PLOG]["remedy"][1]


def test_what_was_written_after_the_look_stays(server):
    hour = 3600.0
    before = server.write(f"{PLOG}/plog-999999999_1.log", at=time.time() - 3 * hour)
    after = server.write(f"{PLOG}/plog-999999998_1.log", at=time.time() - hour)
    model = server.write("/models/a.part", at=time.time() - hour)
    code, done = server.remove(f"plog:{PLOG}", "downloads:/models/a.part", seen=time.time() - 2 * hour)
    assert code == 1 and not before.exists() and after.exists() and model.exists()
    assert "look again" in done["/models/a.part"]["remedy"][1]


@pytest.mark.parametrize(
    "target",
    [
        "stacks:/opt/ascend-console/stacks/../../../etc",
        "stacks:/opt/ascend-console/stacks/current",
        "stacks:/etc",
        "plog:/",
        "downloads:/models",
        "images:docker/--force",
        "nonsense",
        "",
        ":",
        "spools:../../a1-1-00000000",
    ],
)
def test_a_target_that_no_look_finds_is_refused(server, target):
    used = server.stack("one", "current")
    etc, model = server.write("/etc/passwd"), server.write("/models/whole.safetensors")
    code, items = server.run("--seen", "0", "remove", "--", target)
    assert code == 1 and items[0]["verdict"] == "failed"
    assert used.is_dir() and etc.exists() and model.exists()
    assert json.loads(Path(os.environ["ASCEND_REASON"]).read_text())[1].startswith("Not everything that was ticked")


def test_a_folder_that_became_a_link_after_the_look_is_left_alone(server, tmp_path):
    folder = server.stack("three")
    one = next(c for c in places.candidates(program.server_of(load(server.config), STACKS)) if c.category == "stacks")
    folder.rename(tmp_path / "precious")
    folder.symlink_to(tmp_path / "precious")
    done = removing.remove(
        program.server_of(load(server.config), STACKS), one, holders.Holders(), time.time()
    )  # fmt: skip
    assert "link" in done.refused.en and (tmp_path / "precious/activate").exists()


def test_a_link_that_is_put_into_the_way_during_the_removal_leads_nowhere(server, tmp_path, monkeypatch):
    model = server.write("/models/qwen/a.part")
    one = next(c for c in places.candidates(program.server_of(load(server.config), STACKS)))
    model.parent.rename(tmp_path / "precious")
    model.parent.symlink_to(tmp_path / "precious")
    monkeypatch.setattr(removing, "straight", lambda full, root: True)  # it was, when that was asked
    done = removing.remove(program.server_of(load(server.config), STACKS), one, holders.Holders(), time.time())
    assert "link" in done.refused.en and (tmp_path / "precious/a.part").exists()


def test_a_folder_that_cannot_be_moved_is_told_and_the_others_go(server, monkeypatch):
    first, second = server.stack("three"), server.write("/models/a.part")

    def refused(*_names, **_more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refused)
    code, done = server.remove(f"stacks:{STACKS}/three", "downloads:/models/a.part")
    assert code == 1 and first.exists() and not second.exists()
    assert done[f"{STACKS}/three"]["remedy"][1] == "It cannot be deleted: Permission denied."


def test_a_link_inside_goes_and_what_it_points_to_stays(server, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    folder = server.stack("three")
    (folder / "to-folder").symlink_to(precious)
    (folder / "to-file").symlink_to(precious / "data")
    for name in ("to-folder", "to-file"):
        os.utime(folder / name, (OLD, OLD), follow_symlinks=False)
    code, _done = server.remove(f"stacks:{STACKS}/three")
    assert code == 0 and not folder.exists() and (precious / "data").read_text() == "x"


def test_a_piece_inside_a_stack_that_goes_as_well_is_no_failure(server):
    server.stack("three")
    server.write(f"{STACKS}/three/wheels/.torch.whl.new")
    code, _done = server.remove(f"stacks:{STACKS}/three", f"downloads:{STACKS}/three/wheels/.torch.whl.new")
    assert code == 0


# ---------- spools ----------


def attempt(server, name, *, ended=True, at=OLD):
    attempts = server.state / "attempts"
    records = spool.record("o", "hello " * 500) + (
        spool.record("v", spool.event("ended", state="succeeded")) if ended else b""
    )
    assert spool.claim(attempts, name, '{"not_after": 1}', records) == "claimed"
    for part in ("spec.json", "lines"):
        os.utime(attempts / name / part, (at, at))
    return attempts / name


def test_lines_that_the_console_never_took_go_and_the_claim_stays(server):
    old = attempt(server, "a1-1-00000001")
    attempt(server, "a2-1-00000002", ended=False)
    attempt(server, "a3-1-00000003", at=time.time())
    spool.mark_shipped(attempt(server, "a4-1-00000004"))
    found = [name for name in server.look() if name.startswith("spools:")]
    assert found == [f"spools:{old}"]
    code, done = server.remove(found[0])
    assert code == 0 and done[str(old)]["verdict"] == "ok"
    assert sorted(path.name for path in old.iterdir()) == ["shipped", "spec.json"]
    assert spool.claim(server.state / "attempts", "a1-1-00000001", '{"not_after": 1}') == "already"


# ---------- images ----------

ID = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
REF = "quay.io/ascend/vllm-ascend:v0.18.0"
LIST = "docker images --no-trunc --format {{.Repository}}:{{.Tag}} {{.ID}}"
PS = "docker ps -a --no-trunc --format {{.Image}} {{.Names}}"
INSPECT = "docker image inspect --format {{.Size}} {{.Created}} " + ID.removeprefix("sha256:")


def engine(tmp_path, **more):
    tools = {
        LIST: (0, f"{REF} {ID}\nmysql:8 {OTHER}\n<none>:<none> {OTHER}\n"),
        PS: (0, ""),
        INSPECT: (0, "9663676416 2026-03-01T10:00:00.123456789Z\n"),
    }
    return FileHost(tmp_path, tools={**tools, **more})


def test_unused_images_of_ours_are_offered_with_their_size(tmp_path):
    (one,), problems = images.images(engine(tmp_path))
    assert (one.path, one.bytes, one.why, problems) == (f"docker/{REF}", 9663676416, None, [])
    assert time.gmtime(one.made_at)[:3] == (2026, 3, 1)


@pytest.mark.parametrize("by", [REF, ID])
def test_an_image_that_a_container_uses_stays(tmp_path, by):
    (one,), _problems = images.images(engine(tmp_path, **{PS: (0, f"{by} qwen\n")}))
    assert "qwen" in one.why.en


def test_an_engine_that_does_not_let_us_look_is_told_with_the_command(tmp_path):
    found, problems = images.images(engine(tmp_path, **{LIST: (1, "permission denied\n")}))
    assert found == [] and "As root see: docker images" in problems[0][1].en


def test_an_image_is_taken_away_by_its_engine_without_force(tmp_path):
    host = engine(tmp_path, **{f"docker rmi {REF}": (1, "Error: image is being used\n")})
    (one,), _problems = images.images(host)
    assert "being used" in images.remove(host, one).en
    host.tools[f"docker rmi {REF}"] = (0, "Untagged\n")
    assert images.remove(host, one) is None
