"""Bundles whose digests are right and whose content is not: whoever made them meant it."""

import io
import json
import os
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import translation

from deployments.services import bundle_import, wheel_bundles
from deployments.stacks import bundles
from deployments.stacks.bundles import MANIFEST, BadBundle
from tests.deployments import tiny_wheels

STACK = "cpu-0.32.0"
ABOUT = {"stack": STACK, "arch": "x86_64", "python": "3.11", "vendor": []}


@pytest.fixture(autouse=True)
def home(tmp_path, settings, db):
    settings.VAR_DIR = tmp_path / "var"
    with translation.override("en"):
        yield tmp_path / "var" / "bundles"


@pytest.fixture
def house(tmp_path):
    tiny_wheels.make(tmp_path / "wheels")
    return sorted((tmp_path / "wheels").iterdir())


@pytest.fixture
def bundle(tmp_path, house):
    folder = tmp_path / "bundle"
    folder.mkdir()
    bundles.pack(house, folder, 0, ABOUT)
    return folder


def remade(folder, tar=None, **changed):
    """The bundle with another manifest, and another tar."""
    manifest = {**json.loads((folder / MANIFEST).read_text()), **changed}
    if tar is not None:
        (folder / "part-001").write_bytes(tar)
        manifest["parts"] = {"part-001": {"size": len(tar), "sha256": sha256(tar).hexdigest()}}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def tar_of(*entries, **headers):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname, entry.pax_headers = kind, 4, "/etc/passwd", dict(headers)
            tar.addfile(entry, io.BytesIO(b"evil"))
    return out.getvalue()


@pytest.mark.parametrize("python", ["abc", "3.x", "3", "3.11.7", "3.11.x", "three.eleven"])
def test_a_python_that_is_no_version_is_refused(bundle, python):
    remade(bundle, python=python)
    for tried in (bundles.check, bundle_import.bring_in):
        with pytest.raises(BadBundle):
            tried(bundle)


@pytest.mark.parametrize(
    "headers",
    [{"GNU.sparse.map": "a,b"}, {"GNU.sparse.size": "x"}, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
     {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "x"}],
)  # fmt: skip
def test_headers_of_the_tar_that_cannot_be_read_are_refused(bundle, home, house, headers):
    remade(bundle, tar_of((house[0].name, tarfile.REGTYPE), **headers))
    for tried in (bundles.check, bundle_import.bring_in):
        with pytest.raises(BadBundle):
            tried(bundle)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CONTTYPE],
)  # fmt: skip
def test_links_devices_and_folders_in_the_tar_are_refused(bundle, home, house, kind):
    remade(bundle, tar_of((house[0].name, kind)))
    for tried in (bundles.check, bundle_import.bring_in):
        with pytest.raises(BadBundle):
            tried(bundle)
    assert list(home.iterdir()) == []


def test_a_wheel_that_stands_in_the_tar_twice_is_refused(bundle, home, house):
    twice = io.BytesIO()
    with tarfile.open(fileobj=twice, mode="w") as tar:
        for path in (house[0], house[0]):
            tar.add(path, path.name)
    remade(bundle, twice.getvalue())
    with pytest.raises(BadBundle, match="not what the manifest lists"):
        bundle_import.bring_in(bundle)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("changed", [{"split": value} for value in (-5, 1, "2G", [], True, 1.5)])
def test_a_split_that_can_never_end_is_refused(bundle, changed):
    remade(bundle, **changed)
    with pytest.raises(BadBundle, match="split"):
        bundles.check(bundle)


@pytest.mark.parametrize("layers", [7, "x", {"a": 1}, [7], [{"files": 7}]])
def test_layers_that_are_no_list_are_refused(bundle, layers):
    remade(bundle, layers=layers)
    with pytest.raises(BadBundle, match="layers"):
        bundles.check(bundle)


def test_nothing_of_it_gets_to_the_terminal_but_plain_text(bundle, capsys):
    row = {"layer": "\x1b[2J", "requirement": "torch\x1b]0;owned\x07==1", "why": "\ud800\r\x00none"}
    remade(bundle, missing=[row])
    with pytest.raises(CommandError):
        call_command("bundle", "check", str(bundle))
    said = capsys.readouterr().out
    assert "missing: torch" in said and said.encode() and not set("\x1b\x07\r\x00") & set(said)
    remade(bundle, missing=[], files={"\x1b[2J\ud800": {"size": 1, "sha256": "0" * 64}})
    with pytest.raises(CommandError) as refused:
        call_command("bundle", "check", str(bundle))
    assert str(refused.value).encode() and "\x1b" not in str(refused.value)


def test_more_than_a_thousand_parts_go_together_in_their_order(tmp_path, house, monkeypatch):
    monkeypatch.setattr(bundles, "LEAST_SPLIT", 1)
    folder = tmp_path / "many"
    folder.mkdir()
    with (tmp_path / "wheels" / house[0].name).open("ab") as file:
        file.write(os.urandom(1100 * 64))
    bundles.pack(house, folder, 64, ABOUT)
    assert (folder / "part-1000").is_file()
    assert bundles.check(folder)["stack"] == STACK


def test_a_manifest_or_part_that_is_no_file_holds_nothing_up(bundle):
    part = bundle / "part-001"
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(BadBundle, match="part-001 is missing"):
        bundles.check(bundle)
    (bundle / MANIFEST).unlink()
    os.mkfifo(bundle / MANIFEST)
    ended = subprocess.run(
        [sys.executable, "-c", f"from pathlib import Path\nfrom deployments.stacks import bundles\n"
         f"try:\n    bundles.manifest_in(Path({str(bundle)!r}))\nexcept bundles.BadBundle as error:\n    print(error)"],
        capture_output=True, text=True, timeout=20, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "holds no manifest.json that can be read" in ended.stdout


# ---------- cut off ----------


KILLED = """
import os, sys, signal
import django
django.setup()
from django.conf import settings
from pathlib import Path
settings.VAR_DIR = Path(sys.argv[1])
from deployments.services import bundle_import, bundle_make
bundle_import.check_unused = lambda _name: None
place, left = sys.argv[3], int(sys.argv[4])
def counted(real):
    def call(*words, **more):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words, **more)
    return call
if place == "rename":
    Path.rename = counted(Path.rename)
elif place == "copy":
    from deployments.stacks import bundles
    bundles._copied = counted(bundles._copied)
else:
    os.unlink = counted(os.unlink)
if place == "remove":
    bundle_import.take_out(sys.argv[2])
else:
    bundle_import.bring_in(Path(sys.argv[2]), lambda _line: None)
"""


def killed(settings, what, place, after):
    """Import a bundle, or remove one, and be killed at the call numbered `after` of that place."""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"}
    words = [sys.executable, "-c", KILLED, str(settings.VAR_DIR), str(what), place, str(after)]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert ended.returncode == -9, ended.stderr


@pytest.mark.parametrize(("place", "after"), [("copy", 1), ("copy", 3), ("rename", 0)])
def test_an_import_that_was_killed_leaves_nothing_that_is_used_and_the_next_one_tidies_up(
    bundle, home, settings, place, after
):
    killed(settings, bundle, place, after)
    assert not wheel_bundles.present() and list(home.iterdir())
    kept = bundle_import.bring_in(bundle, lambda _line: None)
    assert [path.name for path in home.iterdir()] == [kept.name]
    bundle_import.check_kept(home / kept.name)


def test_an_import_in_place_of_another_that_was_killed_is_simply_done_again(bundle, home, settings):
    kept = bundle_import.bring_in(bundle, lambda _line: None)
    remade(bundle, made="another day")
    for after in (0, 1):  # before the old one goes out of the way, and before the new one is there
        killed(settings, bundle, "rename", after)
        assert [one.digest for one in wheel_bundles.present()] == [kept.digest][after:]
    again = bundle_import.bring_in(bundle, lambda _line: None)
    assert again.digest != kept.digest and [path.name for path in home.iterdir()] == [kept.name]


def test_a_removal_that_was_killed_leaves_no_half_bundle_to_choose(bundle, home, settings):
    kept = bundle_import.bring_in(bundle, lambda _line: None)
    killed(settings, kept.name, "remove", 1)
    assert not wheel_bundles.present()
    bundle_import.bring_in(bundle, lambda _line: None)
    assert [path.name for path in home.iterdir()] == [kept.name]
