"""Where models come from, against web servers that misbehave: what is listed, what is fetched, what is refused."""

import hashlib
import os
import random

import pytest

from deployments.artifacts import BadModel, fetch, halves
from deployments.artifacts.sources import Broken, File, names
from deployments.artifacts.sources.hubs import HuggingFace, ModelScope
from deployments.artifacts.sources.shared_path import SharedPath
from deployments.artifacts.sources.web import Web
from deployments.artifacts.sources.web_folder import WebFolder
from tests.deployments import models_on_disk
from tests.deployments.model_hub import COMMIT, TOKEN, Hub

BIG = random.Random(7).randbytes(700_000)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setenv("ASCEND_RETRY_S", "0.01")
    monkeypatch.setenv("ASCEND_STALL_S", "5")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def short_stalls(monkeypatch):
    monkeypatch.setenv("ASCEND_STALL_S", "1")
    monkeypatch.setattr(fetch, "TRIES", 3)


@pytest.fixture
def files(tmp_path):
    folder = models_on_disk.model(tmp_path / "origin")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.iterdir())}
    return {**found, "figures/名 字.json": b"{}", "model-00001-of-00002.safetensors": BIG}


@pytest.fixture
def hub(files):
    made = Hub(files)
    yield made
    made.close()


def hugging_face(hub, **tokens):
    return HuggingFace(Web(tokens), hub.url, "org/tiny")


def model_scope(hub, **tokens):
    return ModelScope(Web(tokens), hub.url, "org/tiny")


def web_folder(hub, **tokens):
    return WebFolder(Web(tokens), hub.url + "/models/")


def fetched(source, part, **more):
    """{name: bytes} of all that came, checked against the digests that the fetch tells."""
    part.mkdir(exist_ok=True)
    chosen = names.choose(source.files())
    made = fetch.Fetch(source, part, **more).all(chosen.files)
    assert not [path for path in (part / names.OWN).iterdir() if path.name != "lock" and path.suffix != ".json"]
    found = {name: (part / name).read_bytes() for name in made.files}
    assert {n: hashlib.sha256(data).hexdigest() for n, data in found.items()} == {
        n: f.sha256 for n, f in made.files.items()
    }
    return found


@pytest.mark.parametrize("of", [hugging_face, model_scope, web_folder])
def test_every_file_comes(of, hub, files, tmp_path):
    assert fetched(of(hub), tmp_path / "part") == files


def test_a_hub_is_asked_for_one_commit(hub, tmp_path):
    source = hugging_face(hub)
    fetched(source, tmp_path / "part")
    assert source.revision == COMMIT
    assert all(f"/resolve/{COMMIT}/" in path for _m, path, _h in hub.asked if "/resolve/" in path)


@pytest.mark.parametrize("of", [hugging_face, model_scope, web_folder])
def test_what_breaks_off_goes_on_where_it_was(of, hub, files, tmp_path):
    hub.behave["model-00001-of-00002.safetensors"] = "breaks"
    assert fetched(of(hub), tmp_path / "part") == files
    if of is not model_scope:  # the name stands in its query
        assert hub.ranges("model-00001-of-00002.safetensors") == ["", f"bytes={len(BIG) // 2}-"]


@pytest.mark.parametrize("of", [hugging_face, model_scope, web_folder])
def test_without_ranges_it_begins_anew(of, hub, files, tmp_path, short_stalls):
    name = "model-00001-of-00002.safetensors"
    hub.behave[name] = "hangs"
    with pytest.raises(BadModel):
        fetched(of(hub), tmp_path / "part")
    hub.behave[name] = "no ranges"
    assert fetched(of(hub), tmp_path / "part") == files


@pytest.mark.parametrize(
    "how", ["hangs", "trickles", "always breaks", "503", "short", "long", "html", "gzip", "circle"]
)
@pytest.mark.parametrize("of", [hugging_face, web_folder])
def test_what_never_comes_ends_in_a_sentence(of, how, hub, tmp_path, short_stalls):
    source = of(hub)
    hub.behave["model-00001-of-00002.safetensors"] = how
    if of is web_folder and how in ("long", "short"):
        pytest.skip("it lists no sizes, so what it sends is what there is")
    with pytest.raises((BadModel, Broken)) as caught:
        fetched(source, tmp_path / "part")
    assert str(caught.value)
    assert not (tmp_path / "part" / "model-00001-of-00002.safetensors").exists()


def test_other_content_of_the_same_size_is_noticed(hub, tmp_path):
    for name in ("config.json", "model-00001-of-00002.safetensors"):  # by git's digest, and by SHA-256
        hub.behave = {name: "wrong"}
        with pytest.raises(BadModel, match=name):
            fetched(hugging_face(hub), tmp_path / name)
        assert not (tmp_path / name / name).exists()


def test_a_file_that_changes_between_two_parts_is_fetched_anew(hub, tmp_path):
    name = "model-00001-of-00002.safetensors"
    hub.behave[name] = "changes"
    found = fetched(web_folder(hub), tmp_path / "part")
    assert found[name] == bytes(reversed(BIG)), "all of it is of one state"


def test_a_file_that_changes_is_refused_where_its_digest_is_known(hub, tmp_path):
    name = "model-00001-of-00002.safetensors"
    hub.behave[name] = "changes"
    with pytest.raises(BadModel, match="another content"):
        fetched(hugging_face(hub), tmp_path / "part")


def test_a_size_that_lies_is_refused(hub, tmp_path):
    name = "model-00001-of-00002.safetensors"
    for size in (len(BIG) - 5, len(BIG) + 5, 1 << 49, -1, "x"):
        hub.told[name] = {"lfs": {"oid": hashlib.sha256(BIG).hexdigest(), "size": size}}
        if size in (-1, "x"):  # as good as none
            assert fetched(hugging_face(hub), tmp_path / "none")[name] == BIG
            continue
        with pytest.raises(BadModel, match="listed"):
            fetched(hugging_face(hub), tmp_path / "part")


def test_whole_files_are_not_fetched_again(hub, files, tmp_path):
    fetched(hugging_face(hub), tmp_path / "part")
    hub.asked.clear()
    counted = []
    assert fetched(hugging_face(hub), tmp_path / "part", count=counted.append) == files
    assert not [path for _m, path, _h in hub.asked if "/resolve/" in path]
    assert sum(counted) == sum(map(len, files.values()))


def test_a_whole_file_of_another_state_is_fetched_again(hub, files, tmp_path):
    fetched(hugging_face(hub), tmp_path / "part")
    hub.files["config.json"] = files["config.json"].replace(b"qwen2", b"qwen3")
    assert fetched(hugging_face(hub), tmp_path / "part") == hub.files


def test_a_file_without_digest_that_has_changed_is_fetched_again(hub, tmp_path):
    fetched(web_folder(hub), tmp_path / "part")
    hub.files["model-00001-of-00002.safetensors"] = bytes(reversed(BIG))
    assert fetched(web_folder(hub), tmp_path / "part") == hub.files
    folder = models_on_disk.model(tmp_path / "shared")
    fetched(SharedPath(folder), tmp_path / "copy")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("qwen2", "qwen3"))
    assert fetched(SharedPath(folder), tmp_path / "copy")["config.json"] == text.replace("qwen2", "qwen3").encode()


def test_after_a_restart_of_the_machine_whole_files_are_read_again(hub, files, tmp_path, monkeypatch):
    part, name = tmp_path / "part", "model-00001-of-00002.safetensors"
    fetched(hugging_face(hub), part)
    (part / name).write_bytes(bytes(len(BIG)))  # as a power cut may leave it
    monkeypatch.setattr(halves, "boot", lambda: "another")
    hub.asked.clear()
    assert fetched(hugging_face(hub), part) == files
    assert hub.ranges(name) == [""] and not hub.ranges("config.json")


def test_what_is_counted_is_what_there_is(hub, files, tmp_path):
    hub.behave["model-00001-of-00002.safetensors"] = "breaks"
    counted = []
    fetched(hugging_face(hub), tmp_path / "part", count=counted.append)
    assert sum(counted) == sum(map(len, files.values()))


def test_something_is_told_while_nothing_comes(hub, tmp_path, short_stalls, monkeypatch):
    monkeypatch.setattr(fetch, "TICK_S", 0.05)
    hub.behave["model-00001-of-00002.safetensors"] = "hangs"
    counted = []
    with pytest.raises(BadModel):
        fetched(hugging_face(hub), tmp_path / "part", count=counted.append)
    assert counted.count(0) > 5


# ---------- tokens ----------


def test_a_token_lets_in_and_goes_nowhere_else(files, tmp_path):
    other, hub = Hub(files), Hub(files, token=TOKEN)
    try:
        hub.other, hub.behave["model-00001-of-00002.safetensors"] = other, "elsewhere"
        source = HuggingFace(Web({hub.url: TOKEN}), hub.url, "org/tiny")
        assert fetched(source, tmp_path / "part") == files
        assert other.asked and not [h for _m, _p, h in other.asked if "Authorization" in h or "Cookie" in h]
        assert source.web.called == [hub.url, other.url]
        for tokens in ({}, {hub.url: "wrong"}, {"127.0.0.1": TOKEN}):  # the last: a host's own goes by https alone
            with pytest.raises(BadModel, match="MODEL_TOKENS"):
                HuggingFace(Web(tokens), hub.url, "org/tiny").files()
    finally:
        hub.close()
        other.close()


def test_an_authority_of_the_site_is_trusted_when_it_is_named(files, tmp_path):
    hub = Hub(files, token=TOKEN, tls=tmp_path)
    try:
        with pytest.raises(BadModel, match="MODEL_HUB_CA"):
            HuggingFace(Web({"127.0.0.1": TOKEN}), hub.url, "org/tiny").files()
        source = HuggingFace(Web({"127.0.0.1": TOKEN}, hub.ca_pem), hub.url, "org/tiny")
        assert fetched(source, tmp_path / "part") == files
    finally:
        hub.close()


def test_what_is_not_there_is_told(hub):
    for source in (HuggingFace(Web(), hub.url, "org/none"), HuggingFace(Web(), hub.url, "org/tiny", "v9"),
                   ModelScope(Web(), hub.url, "org/none"), WebFolder(Web(), hub.url + "/other/")):  # fmt: skip
        with pytest.raises(BadModel):
            source.files()
    with pytest.raises(Broken):
        HuggingFace(Web(), "http://127.0.0.1:9", "org/tiny").files()
    for url in ("ftp://x/y", "file:///etc/passwd", "http://[::1", "x"):
        with pytest.raises(BadModel):
            Web().open(url)


# ---------- names ----------


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", "a//b", ".", "a\\b", "a\0b", "a\nb", "", "x" * 300, "NUL", "com1.txt", "C:x",
     "a/" * 30 + "b", "\ud800"],
)  # fmt: skip
def test_names_that_lead_outside_are_refused(name, hub):
    with pytest.raises(BadModel, match="may not be called"):
        names.choose([File("config.json", 1), File(name, 1)])


@pytest.mark.parametrize("pair", [("a", "a"), ("a", "a/b")])
def test_names_that_meet_are_refused(pair):
    with pytest.raises(BadModel):
        names.choose([File(name, 1) for name in pair])


def test_pickles_are_left_out_unless_asked_for():
    some = [File("model.safetensors", 1), File("pytorch_model.BIN", 2), File("a.pth", 3)]
    chosen = names.choose(some)
    assert [file.name for file in chosen.files] == ["model.safetensors"]
    assert chosen.left == [("pytorch_model.BIN", "pickle"), ("a.pth", "pickle")]
    assert len(names.choose(some, pickles=True).files) == 3
    with pytest.raises(BadModel, match="pickles only"):
        names.choose([File("config.json", 1), File("pytorch_model.bin", 2)])


def test_patterns_choose():
    some = [File(name, 1) for name in ("config.json", "original/a.safetensors", "b.safetensors", "README.md", ".git/x")]
    assert [f.name for f in names.choose(some, leave_out=["original/*", "*.md"]).files] == [
        "b.safetensors",
        "config.json",
    ]
    assert [f.name for f in names.choose(some, only=["*.json"]).files] == ["config.json"]
    with pytest.raises(BadModel, match="no file"):
        names.choose(some, only=["nothing"])


# ---------- folders ----------


@pytest.mark.parametrize("listing", ["none", "forbidden"])
def test_a_folder_without_listing_is_found_by_its_index(listing, hub, files, tmp_path):
    hub.listing = listing
    found = fetched(web_folder(hub), tmp_path / "part")
    assert found == {name: data for name, data in files.items() if "/" not in name}


def test_a_server_without_head_is_asked_otherwise(hub, files, tmp_path):
    hub.no_head = True
    hub.files[".git/objects/x"] = b"never asked for"
    assert fetched(web_folder(hub), tmp_path / "part") == files


def test_sums_that_lie_there_are_used(hub, tmp_path):
    lines = [f"{hashlib.sha256(data).hexdigest()}  ./{name}" for name, data in hub.files.items()]
    hub.files["SHA256SUMS"] = "\n".join(lines).encode()
    assert {file.name for file in web_folder(hub).files() if not file.sha256} == {"SHA256SUMS"}
    hub.files["config.json"] = hub.files["config.json"].replace(b"qwen2", b"qwen3")
    with pytest.raises(BadModel, match=r"config\.json"):
        fetched(web_folder(hub), tmp_path / "part")


def test_a_shared_path_is_copied(tmp_path):
    folder = models_on_disk.model(tmp_path / "shared 模型")
    found = fetched(SharedPath(folder), tmp_path / "part")
    assert found == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_links_within_a_cache_are_followed_and_others_not(tmp_path):
    home = tmp_path / "models--org--tiny"
    snapshot = models_on_disk.model(home / "snapshots" / "abc")
    (home / "blobs").mkdir()
    (snapshot / "config.json").rename(home / "blobs" / "c0ffee")
    (snapshot / "config.json").symlink_to("../../blobs/c0ffee")
    assert fetched(SharedPath(snapshot), tmp_path / "part")["config.json"]
    (tmp_path / "secret").write_text("x")
    (snapshot / "a.json").symlink_to(tmp_path / "secret")
    with pytest.raises(BadModel, match="leads out"):
        SharedPath(snapshot).files()
    (snapshot / "a.json").unlink()
    (snapshot / "b.json").symlink_to(snapshot / "b.json")
    with pytest.raises(BadModel):
        SharedPath(snapshot).files()


def test_two_at_once_do_not_write_into_one_folder(hub, tmp_path):
    part = tmp_path / "part"
    (part / names.OWN).mkdir(parents=True)
    held = fetch.locks.try_lock(part / names.OWN / "lock")
    with pytest.raises(BadModel, match="Another job"):
        fetched(hugging_face(hub), part)
    os.close(held)
    fetched(hugging_face(hub), part)
