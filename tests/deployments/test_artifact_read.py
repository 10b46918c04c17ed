"""What a model's folder tells of itself, and what is said where it is broken."""

import json
import os
import struct
import time

import pytest

from deployments.artifacts import BadModel, digests, paths, target, tensors
from deployments.artifacts.read import read
from tests.deployments.models_on_disk import CONFIG, model, safetensors


def problems(folder):
    return {one.code: one.text.en for one in read(folder).problems}


def test_a_whole_model_tells_what_it_is(tmp_path):
    found = read(model(tmp_path / "千问 2 小"))
    assert (found.format, found.architecture, found.dtype, found.quant_type) == ("hf", "Qwen2ForCausalLM", "BF16", "")
    assert (found.layers, found.heads, found.kv_heads, found.head_dim, found.experts) == (3, 6, 2, 8, None)
    assert found.parameters == 48 * 301 + 3 * 48 * 48 and found.weight_bytes > 2 * found.parameters
    assert found.whole and found.tokenizer and found.shards == 2 and found.tied and found.name == "千问 2 小"
    assert found.bytes == sum(path.stat().st_size for path in (tmp_path / "千问 2 小").iterdir())


def test_the_fingerprint_names_the_content_and_not_the_place(tmp_path):
    one, two = read(model(tmp_path / "a")), read(model(tmp_path / "b"))
    assert one.fingerprint == two.fingerprint
    shard = tmp_path / "b" / "model-00002-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert read(tmp_path / "b").fingerprint != one.fingerprint
    (tmp_path / "a" / "config.json").write_text(json.dumps({**CONFIG, "torch_dtype": "float16"}))
    assert read(tmp_path / "a").fingerprint not in (one.fingerprint, read(tmp_path / "b").fingerprint)


def test_what_is_missing_is_named(tmp_path):
    folder = model(tmp_path / "m", tokenizer=False, config={"auto_map": {"AutoConfig": "configuration_x.XConfig"}})
    (folder / "model-00002-of-00002.safetensors").unlink()
    (folder / "other.safetensors.incomplete").write_bytes(b"x")
    found = read(folder)
    said = {one.code: one.text.en for one in found.problems}
    assert said["missing_shard"] == "The shard model-00002-of-00002.safetensors is missing."
    assert set(said) == {"missing_shard", "no_tokenizer", "no_code", "half"} and not found.whole and found.remote_code
    assert all(one.missing for one in found.problems)


def test_an_index_that_does_not_fit_its_shards(tmp_path):
    folder = model(tmp_path / "m")
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"]["model.layers.9.mlp.up_proj.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(listed))
    assert "model.layers.9" in problems(folder)["index_mismatch"]
    index.write_text('{"weight_map": {"a": 3}}')
    assert problems(folder) == {"bad_index": "model.safetensors.index.json has no weight_map."}


def row(dtype="BF16", shape=(2, 2), at=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(at)}


@pytest.mark.parametrize(
    ("header", "data", "said"),
    [
        (b"{", b"", "no JSON"),
        (b"[]", b"", "no object"),
        ({"a": row()}, b"x" * 7, "1 bytes are missing"),
        ({"a": row()}, b"x" * 9, "behind its last"),
        ({"a": row(), "b": row(at=(4, 12))}, b"x" * 12, "overlap"),
        ({"a": row(at=(8, 16))}, b"x" * 16, "leave a hole"),
        ({"a": row(shape=(3, 3))}, b"x" * 8, "no sense"),
        ({"a": row(shape=(-1, -4))}, b"x" * 8, "no sense"),
        ({"a": {"dtype": "BF16"}}, b"", "no sense"),
        ({"a": row(at=(0, 10**30))}, b"x" * 8, "no sense"),
        (b"[" * 100_000, b"", "no JSON"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, data, said):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    with pytest.raises(BadModel, match=said):
        tensors.header(path)


@pytest.mark.parametrize("data", [b"", b"\x01", struct.pack("<Q", 2**63), struct.pack("<Q", 40) + b"{}"])
def test_a_file_that_is_cut_off_is_refused(tmp_path, data):
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(BadModel, match="cut off"):
        tensors.header(tmp_path / "w.safetensors")


def test_a_damaged_shard_is_a_problem_of_the_model(tmp_path):
    folder = model(tmp_path / "m")
    shard = folder / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-3])
    assert "3 bytes are missing" in problems(folder)["damaged"]


def test_no_model_at_all(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "config.json").symlink_to("config.json")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"model_type": ')
    for name, said in {
        "file": "is no folder", "gone": "There is no folder", "empty": "holds no config.json",
        "loop": "leads to no file", "broken": "is no JSON object",
    }.items():  # fmt: skip
        with pytest.raises(BadModel, match=said):
            read(tmp_path / name)


def test_a_pipe_in_the_folder_hangs_nobody(tmp_path):
    folder = model(tmp_path / "m")
    os.mkfifo(folder / "extra.safetensors")
    assert read(folder).whole


def test_pickles_alone_are_no_weights(tmp_path):
    folder = model(tmp_path / "m")
    for shard in folder.glob("*.safetensors*"):
        shard.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")
    assert "only pickles" in problems(folder)["only_pickles"] and read(folder).pickles == ("pytorch_model.bin",)


def test_a_quantized_model_and_graphs_for_other_runtimes(tmp_path):
    folder = model(tmp_path / "q")
    (folder / "quant_model_description.json").write_text(json.dumps({"model_quant_type": "w8a8"}))
    assert (read(folder).format, read(folder).quant_type) == ("quantized", "W8A8")
    (tmp_path / "om").mkdir()
    (tmp_path / "om" / "net.om").write_bytes(b"x")
    assert read(tmp_path / "om").format == "om"


def test_two_hundred_shards_are_read_quickly(tmp_path):
    folder = model(tmp_path / "m", shards=1)
    for n in range(200):
        safetensors(folder / f"more-{n}.safetensors", {f"t{n}.{k}": (2, 2) for k in range(400)})
    began = time.monotonic()
    assert read(folder).shards == 201
    assert time.monotonic() - began < 20  # a tenth of that on a quiet machine; only hanging would miss this


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("models/x", "whole path"), ("/a/../etc/x", "Write the path"), ("/etc/x", "system's own"),
        ("/", "system's own"), ("/a\nb", "control"), ("/" + "a" * 1000, "1000"), ("//a", "Write the path"),
    ],
)  # fmt: skip
def test_paths_that_are_none(path, said):
    assert said in paths.problem(path).en
    assert paths.problem("/data/模型 一/x") is None


def test_a_target_gets_its_name_when_it_is_whole(tmp_path):
    wanted = tmp_path / "deep" / "new"
    part = target.begin(wanted)
    (part / "w").write_text("x")
    assert target.begin(wanted) == part and not wanted.exists() and target.is_part(part.name)
    target.finish(part, wanted)
    assert (wanted / "w").read_text() == "x" and not part.exists()
    with pytest.raises(BadModel, match="is not empty"):
        target.begin(wanted)
    (tmp_path / "link").symlink_to(tmp_path / "deep")
    with pytest.raises(BadModel, match="no folder"):
        target.begin(tmp_path / "link")
    with pytest.raises(BadModel, match="is needed"):
        target.room(tmp_path / "not" / "there", 10**18)


def test_digests_are_kept_apart_from_the_model_and_find_a_changed_byte(tmp_path):
    folder, counted = model(tmp_path / "m"), []
    made = digests.make(folder, counted.append)
    assert sum(counted) == read(folder).bytes and len(made.files) == 5
    digests.keep(tmp_path / "state", folder, made)
    assert digests.known(tmp_path / "state", folder) == made and digests.known(tmp_path, folder) is None
    shard = folder / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    (folder / "more").write_text("x")
    (folder / "tokenizer.json").unlink()
    said = [text.en for text in digests.differences(made, digests.make(folder).files)]
    assert said == [
        "model-00001-of-00002.safetensors has another content", "more is there in addition",
        "tokenizer.json is missing",
    ]  # fmt: skip
