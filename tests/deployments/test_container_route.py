"""The container route as the kind `install` runs it, with a docker or podman that writes down how it was called.

No container engine runs here: what an engine does with these arguments is not tried.
"""

import dataclasses
import json
import stat
import sys

import pytest

from deployments.stacks import container, frozen, plan
from deployments.stacks.catalogue import built_in
from deployments.stacks.options import Options
from tests.deployments.agent_bench import AgentServer, ended, events
from tests.deployments.stack_facts import server

KNOWN = built_in()
STACK = KNOWN.stacks["vllm-ascend-0.23.0"]
PAIRED = {"driver": "25.5.2", "firmware": "7.8.0.6.201", "firmware_range": ["7.0.0–7.9.99"]}
IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0-openeuler"
NAME = "ascend-console-smoke-vllm-ascend-0.23.0"
ENGINE = """#!{python}
import json, sys
from pathlib import Path

home = Path({home!r})
behave = json.loads((home / "behave.json").read_text())
words = sys.argv[1:]
with (home / "called.jsonl").open("a") as out:
    print(json.dumps([Path(sys.argv[0]).name, *words]), file=out)
code, said = behave.get(words[0], [0, ""])
if said:
    print(said, file=sys.stderr)
if code:
    sys.exit(code)
images = home / "images.json"
has = json.loads(images.read_text()) if images.exists() else []
if words[0] in ("load", "pull"):
    images.write_text(json.dumps([*has, behave["gives"]]))
if words[:2] == ["image", "inspect"]:
    if words[-1] not in has:
        sys.exit("Error: No such image: " + words[-1])
    print(behave["platform"] if "--format" in words else "[]")
if words[0] == "run":
    print("True 1")
"""


class Engines:
    """docker and podman on PATH. `behave` = {first word: [exit code, what it says]} over what they do by themselves."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir()
        self.behave()

    def install(self, name):
        path = self.folder / name
        path.write_text(ENGINE.format(python=sys.executable, home=str(self.folder)))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def behave(self, **words):
        (self.folder / "behave.json").write_text(json.dumps({"gives": IMAGE, "platform": "linux/arm64", **words}))

    def called(self):
        path = self.folder / "called.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        return found


@pytest.fixture
def engines(tmp_path, monkeypatch):
    made = Engines(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}:/usr/bin:/bin")
    return made


@pytest.fixture
def run(tmp_path):
    """Run the planned steps as a job does: (state, reason in English, states of the steps)."""
    agent = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    root = tmp_path / "root"
    for path in ("/dev/davinci0", *(f"/dev/{name}" for name in container.MANAGERS), *container.MOUNTS):
        (root / path.strip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.strip("/")).touch()

    def below(step):
        """The same step, which looks for the devices and files below a folder of the test."""
        argv = (*step.argv[:3], *(f"{root}{path.rstrip('/')}" for path in step.argv[3:]))
        return dataclasses.replace(step, argv=argv) if step.key == "mounts" else step

    def work(made):
        made = dataclasses.replace(made, steps=tuple(map(below, made.steps)))
        params = {"stack": STACK.name, "plan": frozen.write(made)}
        folder = agent.run(kind="install", params=params, timeout=120)
        last = ended(folder)
        return last["state"], (last["reason"] or ["", ""])[1], [one["state"] for one in events(folder, "step_end")]

    work.root = root
    yield work
    agent.close()


def made(runtime="docker", family="A2", **options):
    has = server(family, **PAIRED, containers=[{"name": runtime, "version": "1"}])
    found = plan.make(has, STACK, KNOWN, Options(route="container", **options))
    assert not found.refusals and not found.gaps
    return dataclasses.replace(found, steps=tuple(step for step in found.steps if step.layer == "container"))


SMOKE = ["docker", "run", "--rm", "--name", NAME, "--shm-size", "1g", "--device", "/dev/davinci0",
         "--device", "/dev/davinci_manager", "--device", "/dev/devmm_svm", "--device", "/dev/hisi_hdc",
         "-v", "/usr/local/dcmi:/usr/local/dcmi", "-v", "/usr/local/bin/npu-smi:/usr/local/bin/npu-smi",
         "-v", "/usr/local/Ascend/driver/lib64/:/usr/local/Ascend/driver/lib64/",
         "-v", "/usr/local/Ascend/driver/version.info:/usr/local/Ascend/driver/version.info",
         "-v", "/etc/ascend_install.info:/etc/ascend_install.info",
         IMAGE, "timeout", "540", "python", "-c", container.SMOKE]  # fmt: skip


def test_an_archive_is_loaded_tried_and_the_second_time_only_tried(engines, run):
    engines.install("docker")
    found = made(image_archive="/data/image.tar.gz")
    assert found.addresses == ()
    look, ask = ["docker", "image", "inspect"], ["docker", "image", "inspect", "--format", "{{.Os}}/{{.Architecture}}"]
    remove = ["docker", "rm", "-f", NAME]
    state, reason, steps = run(found)
    assert state == "succeeded", (reason, steps)
    assert steps == ["succeeded"] * 7
    assert engines.called() == [
        ["docker", "version"], [*look, IMAGE], ["docker", "load", "-i", "/data/image.tar.gz"], [*look, IMAGE],
        [*ask, IMAGE], remove, SMOKE, remove,
    ]  # fmt: skip
    assert run(found)[2] == ["succeeded", "succeeded", "skipped", *["succeeded"] * 4]
    assert [words[1] for words in engines.called()] == ["version", "image", "image", "rm", "run", "rm"]


def test_podman_pulls_from_the_registry_that_was_named(engines, run):
    engines.install("podman")
    image = IMAGE.replace("quay.io/ascend", "harbor.example/ascend")
    engines.behave(gives=image)
    found = made("podman", registry="harbor.example/ascend")
    assert found.addresses == ("harbor.example",)
    assert run(found)[0] == "succeeded"
    assert ["podman", "pull", "--platform", "linux/arm64", image] in engines.called()


@pytest.mark.parametrize(
    ("family", "tag", "size"), [("310P", "v0.23.0-310p-openeuler", "10g"), ("A3", "v0.23.0-a3-openeuler", "1g")]
)
def test_each_chip_has_its_image(family, tag, size):
    smoke = next(step for step in made(family=family).steps if step.key == "smoke").argv
    assert f"quay.io/ascend/vllm-ascend:{tag}" in smoke and smoke[smoke.index("--shm-size") + 1] == size


def test_without_an_engine_nothing_else_is_begun(engines, run):
    state, reason, steps = run(made())
    assert state == "failed" and "no docker on this server" in reason and steps[1:] == ["skipped"] * 6


@pytest.mark.parametrize(
    ("behave", "said", "failed"),
    [
        ({"version": [1, "Cannot connect to the Docker daemon at unix:///x.sock."]},
         "does not run", 1),
        ({"version": [1, "permission denied while trying to connect to the Docker daemon socket"]},
         "may not use docker", 1),
        ({"pull": [1, "Error: manifest for x not found: manifest unknown"]}, "has no such image", 3),
        ({"pull": [1, "dial tcp: lookup quay.io: no such host"]}, "cannot be reached", 3),
        ({"pull": [1, "write /var/lib/docker/x: no space left on device"]}, "disk is full", 3),
        ({"gives": "quay.io/other:1"}, "does not hold", 3),
        ({"platform": "linux/amd64"}, "did not print", 4),
        ({"run": [1, "False 0"]}, "exit code 1", 6),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said_and_the_rest_is_left(engines, run, behave, said, failed):
    engines.install("docker")
    engines.behave(**behave)
    state, reason, steps = run(made())
    assert state == "failed" and said in reason and steps.index("failed") + 1 == failed
    assert set(steps[failed:]) <= {"skipped"}


def test_a_damaged_archive_is_named(engines, run):
    engines.install("docker")
    engines.behave(load=[1, "archive/tar: invalid tar header"])
    assert "Kylin V10" in run(made(image_archive="/data/image.tar"))[1]


def test_a_device_or_file_that_is_missing_is_named_before_an_engine_makes_a_folder_of_it(engines, run):
    engines.install("docker")
    (run.root / "dev/davinci0").unlink()
    (run.root / "etc/ascend_install.info").unlink()
    state, reason, _steps = run(made())
    assert state == "failed" and "/dev/davinci0, " in reason and "ascend_install.info" in reason
    assert [words[1] for words in engines.called()] == ["version"]
