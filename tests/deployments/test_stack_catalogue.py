"""The catalogue: its own rows, a site's rows, and the files made of them."""

import json

import pytest

from deployments.stacks import catalogue
from deployments.stacks.catalogue import built_in, newest_first, with_site_rows
from deployments.stacks.fields import check
from deployments.stacks.pins import requirements
from tests.conftest import ROOT

KNOWN = built_in()
ROW = {
    "name": "house-1", "vllm_ascend": "0.23.0", "vllm": "0.23.0", "python": ">=3.10,<3.13", "cann": "9.1.0",
    "nnal": "9.1.0", "torch": "2.10.0", "torch_npu": "2.10.0.post4", "triton_ascend": "3.2.2", "families": ["A2"],
    "state": "stable",
}  # fmt: skip


@pytest.fixture
def site(tmp_path):
    def write(rows):
        path = tmp_path / "stacks.json"
        path.write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
        return with_site_rows(path)

    return write


def test_there_is_one_default_and_it_is_final():
    assert [stack.name for stack in KNOWN.stacks.values() if stack.default] == ["vllm-ascend-0.23.0"]
    assert KNOWN.default.state == "stable" and KNOWN.default.wheel is True


def test_every_row_names_its_sources_and_a_cann_that_is_known():
    for stack in KNOWN.stacks.values():
        assert stack.sources and bool(stack.notes.zh) == bool(stack.notes.en), stack.name
        if stack.kind == "npu":
            assert stack.cann.lower() in KNOWN.cann and stack.families, stack.name
            assert {image.family for image in stack.images} <= set(stack.families), stack.name


def test_rows_come_newest_first_and_those_for_the_cpu_last():
    names = [stack.name for stack in newest_first(KNOWN.stacks)]
    assert len(names) == 41 and names[0] == "vllm-ascend-0.26.0rc1" and names[-1] == "cpu-0.32.0"
    assert names.index("vllm-ascend-0.23.0") == names.index("vllm-ascend-0.23.0rc1") - 1


@pytest.mark.parametrize(
    ("chip", "family"),
    [
        ("910B1", "A2"), ("910B4-1", "A2"), ("Ascend910", "A3"), ("Ascend910_9392", "A3"), ("9391", "A3"),
        ("310P3", "310P"), ("310P3vir01", "310P"), ("Ascend950PR", "A5"), ("910A", "A1"), ("910ProB", "A1"),
        ("910PremiumA", "A1"), ("310B1", "310B"), ("310", "310"), ("", None), (None, None), ("H100", None),
    ],
)  # fmt: skip
def test_chips_are_known_by_the_name_that_npu_smi_prints(chip, family):
    assert KNOWN.family_of(chip) == family


@pytest.mark.parametrize(
    ("cann", "stack"), [("9.1.0", "0.23.0"), ("8.5.1", "0.18.0"), ("8.5.0", "0.13.0"), ("8.3.rc2", "0.11.0")]
)
def test_each_cann_has_the_stack_that_is_pinned_to_it(cann, stack):
    assert KNOWN.row_for(cann).vllm_ascend == stack


def test_what_no_source_tells_is_not_known_and_what_does_not_belong_is_empty():
    old = KNOWN.stacks["vllm-ascend-0.12.0rc1"]
    assert KNOWN.driver_min(old) is None and old.triton_ascend == ""
    assert KNOWN.stacks["vllm-ascend-0.26.0rc1"].released is None


def test_a_site_adds_a_row_and_takes_the_rest_from_a_built_in_one(site):
    found = site([ROW, {"base": "vllm-ascend-0.18.0", "name": "house-2", "default": True}])
    assert found.problems == () and found.stacks["house-1"].site
    assert found.stacks["house-2"].cann == "8.5.1" and found.default.name == "house-2"
    assert not found.stacks["vllm-ascend-0.23.0"].default and KNOWN.default.name == "vllm-ascend-0.23.0"


def test_a_site_withdraws_a_built_in_row(site):
    found = site({"stacks": [{"base": "vllm-ascend-0.22.1rc1", "name": "vllm-ascend-0.22.1rc1", "state": "withdrawn"}]})
    assert found.stacks["vllm-ascend-0.22.1rc1"].state == "withdrawn" and len(found.stacks) == len(KNOWN.stacks)


@pytest.mark.parametrize("field", [name for name in ROW if name != "name"])
def test_a_missing_field_is_named_with_its_row(site, field):
    found = site([{name: value for name, value in ROW.items() if name != field}])
    assert [(problem.row, problem.field) for problem in found.problems] == [("stacks.json #1 (house-1)", field)]
    assert field in found.problems[0].text.zh and found.stacks == KNOWN.stacks


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "House 1"), ("name", "../x"), ("name", 7), ("kind", "gpu"), ("vllm", "0.23; rm -rf /"), ("vllm", None),
        ("python", "3.11"), ("families", ["A1"]), ("families", "A2"), ("state", "final"), ("released", "16.8.2026"),
        ("default", "yes"), ("pins", ["--index-url=http://x"]), ("pins", ["x @ http://y"]), ("images", [{"tag": "v1"}]),
        ("images", [{"family": "A2", "os": "ubuntu", "tag": "v1 --privileged"}]), ("notes", "x"), ("wheel", "yes"),
        ("notes", {"zh": "x" * 3000, "en": ""}), ("cann_by_family", {"A2": 1}), ("cann_by_family", ["A2"]),
        ("torch", ""), ("colour", "red"), ("base", "nothing"), ("state", ["rc"]), ("name", ["x"]),
        ("images", [{"family": [], "os": "ubuntu", "tag": "v1"}]), ("sources", ["\x1b[2J"]), ("sources", [[]]),
        ("images", [{"family": "A2", "os": {}, "tag": "v1"}]), ("notes", {"zh": "\ud800", "en": ""}),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_named(site, field, value):
    found = site([{**ROW, field: value}])
    assert found.problems[0].field == field and found.problems[0].text.en.endswith(".")
    assert found.stacks == KNOWN.stacks


@pytest.mark.parametrize(
    "text", ["", "{", "[[]]", "7", '"x"', '{"stacks": 7}', "[1, null]", "[" * 100_000, "\x00", '[{"name": "a"}]'],
)  # fmt: skip
def test_a_file_that_is_none_leaves_the_built_in_rows(site, text):
    found = site(text)
    assert found.problems and all(problem.text.zh and problem.text.en for problem in found.problems)
    assert found.stacks == KNOWN.stacks


def test_names_that_no_page_could_show_are_told_all_the_same(site):
    found = site([{**ROW, "\ud800\x1b[2J": 1}, {"name": "\ud800"}])
    assert [problem.row for problem in found.problems][:2] == ["stacks.json #1 (house-1)", "stacks.json #2 (\ufffd)"]
    assert all(problem.text.en.encode() and "\x1b" not in problem.text.en for problem in found.problems)


def test_a_name_twice_and_two_defaults_are_refused(site):
    assert "twice" in site([ROW, ROW]).problems[0].text.en
    two = [{**ROW, "default": True}, {**ROW, "name": "house-3", "default": True}]
    assert "one row only" in site(two).problems[0].text.en


def test_a_file_too_large_or_unreadable_says_so(tmp_path, site):
    assert "1 MB" in site(" " * (catalogue.MOST_BYTES + 1)).problems[0].text.en
    (tmp_path / "folder").mkdir()
    assert "cannot be read" in with_site_rows(tmp_path / "folder").problems[0].text.en
    assert with_site_rows(tmp_path / "none") is KNOWN


def test_the_check_of_a_row_is_that_of_the_built_in_ones():
    rows = json.loads(catalogue.BUILT_IN.read_text(encoding="utf-8"))["stacks"]
    assert [problem for row in rows for problem in check(row, row["name"], KNOWN.families)] == []


def test_requirements_npu_is_made_of_the_default_stack():
    written = (ROOT / "requirements-npu.txt").read_text(encoding="utf-8")
    assert written == requirements(KNOWN.default, KNOWN)
    pins = [line for line in written.splitlines() if line and not line.startswith(("#", "-"))]
    assert pins[:5] == [
        "vllm-ascend==0.23.0", "torch-npu==2.10.0.post4", "torch==2.10.0", "triton-ascend==3.2.2", "vllm==0.23.0",
    ]  # fmt: skip
