"""Python environments against rows of the stacks, operators and images against the chip."""

import pytest

from deployments.kinds.check_probes import images, operators, software
from deployments.kinds.check_probes.stack import STACKS
from tests.deployments.check_bench import DRIVER, NPU, FileHost

ROW = STACKS.stacks["vllm-ascend-0.23.0"]
HOME = "/opt/serve"
SITE = f"{HOME}/lib/python3.11/site-packages"
ROWS = {"vllm_ascend": "0.23.0", "vllm": ROW.vllm, "torch": f"{ROW.torch}+cpu", "torch_npu": ROW.torch_npu}
CANN = "/usr/local/Ascend/cann-{0}"
INFO = "package_name=Ascend-cann-toolkit\nversion={0}\n"


def installed(packages, home=HOME):
    site = f"{home}/lib/python3.11/site-packages"
    files = {f"{home}/bin/python3.11": ""}
    for name, version in packages.items():
        files[f"{site}/{name}-{version}.dist-info/METADATA"] = f"Name: {name}\nVersion: {version}\n"
    return files


def toolkit(version):
    return {f"{CANN.format(version)}/aarch64-linux/ascend_toolkit_install.info": INFO.format(version)}


@pytest.fixture
def server(tmp_path):
    return lambda *files, tools=(): FileHost(tmp_path, {k: v for part in files for k, v in part.items()}, tools)


def only(findings):
    (found,) = findings
    return found


# ---------- versions ----------


def test_without_an_environment_nothing_is_known(server):
    assert only(software.mix(server())).verdict == "unknown"
    assert software.numpy(server()) == []


def test_an_environment_that_is_its_row_is_well(server):
    found = only(software.mix(server(DRIVER, toolkit(ROW.cann), installed(ROWS))))
    assert (found.verdict, found.wanted) == ("ok", ROW.name)


@pytest.mark.parametrize(
    ("change", "found", "wanted"),
    [
        ({"torch_npu": "2.9.0"}, "torch_npu 2.9.0", f"torch_npu {ROW.torch_npu}"),
        ({"torch_npu": None}, "torch_npu —", f"torch_npu {ROW.torch_npu}"),
        ({"vllm": "0.24.0"}, "vllm 0.24.0", f"vllm {ROW.vllm}"),
        ({"triton_ascend": "3.2.0"}, "triton_ascend 3.2.0", f"triton_ascend {ROW.triton_ascend}"),
    ],
)
def test_a_package_of_another_row_fails_with_the_row_to_install(server, change, found, wanted):
    packages = {name: version for name, version in {**ROWS, **change}.items() if version}
    got = only(software.mix(server(DRIVER, toolkit(ROW.cann), installed(packages))))
    assert (got.verdict, got.found, got.wanted) == ("failed", found, wanted)
    assert got.job == {"kind": "install", "params": {"stack": ROW.name}}


def test_cann_nnal_and_driver_are_held_against_the_row(server):
    old = {**NPU, "/usr/local/Ascend/driver/version.info": "Version=24.1.0\n"}
    nnal = {"/usr/local/Ascend/nnal/atb/8.5.1/": ""}
    got = only(software.mix(server(old, nnal, toolkit("8.5.1"), installed(ROWS))))
    assert got.found == "CANN 8.5.1, NNAL 8.5.1, driver 24.1.0"
    assert got.verdict == "failed"


def test_one_of_several_canns_is_enough(server):
    assert only(software.mix(server(toolkit("8.5.1"), toolkit(ROW.cann), installed(ROWS)))).verdict == "ok"


def test_the_cann_of_a_stacks_own_folder_counts_and_not_the_shared_one(server):
    home = f"/opt/ascend-console/stacks/{ROW.name}"
    own = {f"{home}/ascend/cann/aarch64-linux/ascend_toolkit_install.info": INFO.format("8.5.1")}
    got = only(software.mix(server(own, toolkit(ROW.cann), installed(ROWS, f"{home}/venv"))))
    assert got.found == "CANN 8.5.1"


def test_a_pin_of_the_row_that_is_not_met_is_a_warning(server):
    pin = next(pin for pin in ROW.pins if "==" in pin)
    name = pin.partition("==")[0]
    got = only(software.mix(server(toolkit(ROW.cann), installed({**ROWS, name: "0.0.1"}))))
    assert (got.verdict, got.wanted) == ("warning", pin.replace("==", " "))


def test_a_release_that_no_row_has_is_unknown(server):
    got = only(software.mix(server(installed({**ROWS, "vllm_ascend": "0.99.0"}))))
    assert got.verdict == "unknown" and "0.99.0" in got.remedy.en


def test_vllm_without_its_plugin_uses_no_npu(server):
    assert only(software.mix(server(installed({"torch_npu": "2.9.0", "vllm": "0.18.0"})))).verdict == "warning"


def test_torch_npu_alone_is_for_training(server):
    assert only(software.mix(server(installed({"torch_npu": "2.9.0"}, "/opt/train")))).verdict == "ok"


# ---------- numpy and what CANN imports ----------


@pytest.mark.parametrize(
    ("version", "asks", "verdict"),
    [
        ("1.26.4", "", "ok"),
        ("2.2.6", "", "failed"),
        ("2.2.6", "Requires-Dist: numpy<2.0.0\n", "failed"),
        ("2.2.6", "Requires-Dist: numpy (>=1.21,<3)\n", "ok"),
        (None, "", "failed"),
    ],
)
def test_numpy_is_below_two_unless_the_packages_allow_it(server, version, asks, verdict):
    packages = {**ROWS, **({"numpy": version} if version else {})}
    host = server(installed(packages))
    host.write(f"{SITE}/vllm_ascend-0.23.0.dist-info/METADATA", f"Name: vllm-ascend\nVersion: 0.23.0\n{asks}")
    assert only(software.numpy(host)).verdict == verdict


def test_numpy_of_an_environment_of_ours_is_mended_by_installing_the_stack(server):
    home = f"/opt/ascend-console/stacks/{ROW.name}/venv"
    found = only(software.numpy(server(installed({**ROWS, "numpy": "2.2.6"}, home))))
    assert found.job == {"kind": "install", "params": {"stack": ROW.name}}


def test_what_the_operator_compiler_imports_is_named_where_it_is_missing(server):
    every = dict.fromkeys(software.CANN_NEEDS, "1.0")
    assert only(software.cann_python(server(installed({**ROWS, **every})))).verdict == "ok"
    some = {name: version for name, version in every.items() if name not in ("decorator", "absl_py")}
    found = software.cann_python(server(installed({**ROWS, **some}, "/opt/other")))[-1]
    assert found.found == "− decorator absl_py"


# ---------- is it whole ----------


def whole():
    files = {f"{SITE}/vllm_ascend/{name}/__init__.py": "" for name in software.SUBPACKAGES}
    return {**files, f"{SITE}/vllm_ascend/vllm_ascend_C.cpython-311-aarch64-linux-gnu.so": ""}


@pytest.mark.parametrize(
    ("without", "verdict", "word"),
    [("", "ok", "vllm_ascend"), (".so", "failed", "*.so"), ("attention", "failed", "attention"), ("/", "unknown", "—")],
)
def test_a_plugin_that_is_not_whole_is_told_by_what_is_missing(server, without, verdict, word):
    files = {name: text for name, text in whole().items() if not without or without not in name}
    found = only(software.plugin_whole(server(installed(ROWS), files)))
    assert found.verdict == verdict and word in found.found


def test_an_environment_without_the_plugin_has_no_such_item(server):
    assert software.plugin_whole(server(installed({"torch_npu": "2.9.0"}))) == []


def test_two_backends_for_pytorch_clash(server):
    host = server(installed({**ROWS, "flagcx": "0.1"}))
    for name, version in (("torch_npu", ROW.torch_npu), ("flagcx", "0.1")):
        assert only(software.backends(host)).verdict == "ok"
        host.write(f"{SITE}/{name}-{version}.dist-info/entry_points.txt", "[torch.backends]\nx = y:z\n")
    found = only(software.backends(host))
    assert (found.verdict, found.found) == ("failed", "flagcx, torch_npu")


@pytest.mark.parametrize(
    ("pci", "packages", "verdict"),
    [
        ("D500", {}, "ok"),
        ("D500", {"triton_ascend": "3.2.2"}, "failed"),
        ("D802", {"triton_ascend": "3.2.2"}, "ok"),
        ("D802", {"triton_ascend": "3.2.2", "triton": "3.5.0"}, "warning"),
    ],
)
def test_triton_is_not_for_310p_and_not_there_twice(server, pci, packages, verdict):
    host = server(installed({**ROWS, **packages}))
    host.write("/sys/bus/pci/devices/0000:c1:00.0/uevent", f"PCI_ID=19E5:{pci}\n")
    assert only(software.triton(host)).verdict == verdict


@pytest.mark.parametrize(("own", "verdict"), [(None, "ok"), ("6.0.29", "warning"), ("6.0.33", "ok")])
def test_an_environments_own_library_is_not_older_than_the_systems(server, own, verdict):
    files = {"/usr/lib64/libstdc++.so.6.0.30": ""} | ({f"{HOME}/lib/libstdc++.so.{own}": ""} if own else {})
    assert only(software.libstdcxx(server(installed(ROWS), files))).verdict == verdict


def test_mooncakes_transport_must_be_found_by_the_loader(server):
    assert software.mooncake(server()) == []
    host = server({"/usr/local/lib/ascend_transport.so": ""})
    assert only(software.mooncake(host)).verdict == "warning"
    host.write("/etc/ld.so.conf.d/libc.conf", "/usr/local/lib\n")
    assert only(software.mooncake(host)).verdict == "ok"


# ---------- operators and images ----------


@pytest.mark.parametrize(
    ("chips", "info", "verdict"),
    [
        (["ascend910b"], False, "ok"),
        (["ascend310p"], False, "failed"),
        (["ascend310p", "ascend910b"], False, "ok"),
        ([], False, "failed"),
        ([], True, "unknown"),
    ],
)
def test_operators_are_those_of_the_chip(server, chips, info, verdict):
    folder = CANN.format("9.1.0")
    files = {f"{folder}/{operators.KERNELS}/{chip}/": "" for chip in chips}
    files |= {f"{folder}/aarch64-linux/ascend_910b_ops_install.info": "version=9.1.0\n"} if info else {}
    assert only(operators.operators(server(NPU, toolkit("9.1.0"), files))).verdict == verdict


def test_operators_of_each_cann_are_told_apart(server):
    found = operators.operators(server(NPU, toolkit("9.1.0"), toolkit("8.5.1")))
    assert sorted(one.about for one in found) == ["8.5.1", "9.1.0"]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("quay.io/ascend/vllm-ascend:v0.23.0", "A2"),
        ("quay.io/ascend/vllm-ascend:v0.23.0-a3-openeuler", "A3"),
        ("registry.example:5000/ascend/vllm-ascend:v0.23.0-310p", "310P"),
        ("quay.io/ascend/cann:9.1.0-910b-ubuntu22.04-py3.12", "A2"),
        ("quay.io/ascend/cann:9.1.0-950-openeuler24.03-py3.12", "A5"),
        ("example/vllm-ascend:latest", None),
    ],
)
def test_an_images_name_speaks_of_a_chip(name, family):
    assert images.family_in(name) == family


def test_images_of_another_chip_are_named_and_those_of_others_left_alone(server):
    said = "quay.io/ascend/vllm-ascend:v0.23.0-310p\nquay.io/ascend/vllm-ascend:v0.23.0\nmysql:8-a3\n<none>:<none>\n"
    tools = {"docker": (0, said), "podman": (127, "command not found\n")}
    found = only(images.images(server(NPU, tools=tools)))
    assert (found.verdict, found.found) == ("warning", "quay.io/ascend/vllm-ascend:v0.23.0-310p")


def test_images_that_may_not_be_listed_are_unknown_with_what_it_takes(server):
    tools = {"docker": (1, "permission denied while trying to connect to the Docker daemon socket\n")}
    found = only(images.images(server(NPU, tools=tools)))
    assert found.verdict == "unknown" and "group docker" in found.remedy.en
