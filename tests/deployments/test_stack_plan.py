"""Tables of plans: what runs, in which order, on each family of chips."""

import dataclasses

import pytest

from deployments.stacks import installed, plan, verdict
from deployments.stacks.draft import Holder
from deployments.steps import Evidence
from tests.deployments.planned import KNOWN, NEW, OLD, PACKAGES, PAIRED, SUPPORTED, WHOLE, commands, keys, made, step
from tests.deployments.stack_facts import CHIPS, PACKAGES_0_18, PACKAGES_0_23, server

HDK = {
    "A2": ("Ascend-hdk-910b-npu-driver_26.0.RC1_linux-aarch64.run", "Ascend-hdk-910b-npu-firmware_9.0.0.0.300.run"),
    "A3": ("Atlas-A3-hdk-npu-driver_26.0.RC1_linux-aarch64.run", "Atlas-A3-hdk-npu-firmware_9.0.0.0.300.run"),
    "310P": ("Ascend-hdk-310p-npu-driver_26.0.RC1_linux-aarch64.run", "Ascend-hdk-310p-npu-firmware_9.0.0.0.300.run"),
    "A5": ("Ascend-hdk-A5-npu-driver_26.0.RC1_linux-aarch64.run", "Ascend-hdk-A5-npu-firmware_9.0.0.0.300.run"),
}
OPS = {
    "A2": "Ascend-cann-910b-ops_9.1.0_linux-aarch64.run",
    "A3": "Ascend-cann-A3-ops_9.1.0_linux-aarch64.run",
    "310P": "Ascend-cann-310p-ops_9.1.0_linux-aarch64.run",
    "A5": "Ascend-cann-950-ops_9.1.0_linux-aarch64.run",
}
BEFORE = ["tools", "run_group", "run_user", "join_group"]
AFTER = ["exporters", "reboot", "npus_back", "npu_smi", "check_stack"]


@pytest.mark.parametrize("family", SUPPORTED)
def test_a_first_install_takes_the_driver_then_the_firmware(family):
    found = made(server(family), firmware="9.0.0.0.300")
    driver, firmware = (f"{PACKAGES}/{name}" for name in HDK[family])
    assert found.mode == "first" and found.reboots and not found.refusals
    assert commands(found, "host") == [
        "yum install -y make dkms gcc net-tools pciutils kernel-headers-6.6.0-72.0.0.76.oe2403sp1.aarch64 "
        "kernel-devel-6.6.0-72.0.0.76.oe2403sp1.aarch64",
        "groupadd -f HwHiAiUser",
        "sh -c getent passwd HwHiAiUser >/dev/null || "
        "useradd -g HwHiAiUser -d /home/HwHiAiUser -m HwHiAiUser -s /bin/bash",
        "usermod -aG HwHiAiUser $SUDO_USER",
        f"bash {driver} --check",
        f"bash {firmware} --check",
        "{python} -m deployments.agent.holders",
        f"bash {driver} --nox11 --full --quiet --install-for-all",
        f"bash {firmware} --nox11 --full --quiet",
        "systemctl start npu-exporter",
        "",  # the restart, by hand
        "{python} -m deployments.kinds.reboot_look after --patience 900",
        "npu-smi info",
        "{python} -m deployments.kinds.check_probes stack",
    ]
    assert bool(found.gaps) is (family == "A5")  # no source names the files of its driver


@pytest.mark.parametrize("family", SUPPORTED)
def test_an_upgrade_takes_the_firmware_then_the_driver(family):
    has = server(family, driver="25.0.rc1.1", firmware="7.7.0.1.231", firmware_range=["7.0.0–7.7.99"])
    found = made(has, firmware="9.0.0.0.300")
    driver, firmware = (f"{PACKAGES}/{name}" for name in HDK[family])
    assert found.mode == "upgrade"
    assert keys(found.steps, "host") == [
        *BEFORE, "check_firmware", "check_driver", "free", "firmware", "driver", *AFTER,
    ]  # fmt: skip
    assert " ".join(step(found, "firmware").argv) == f"bash {firmware} --nox11 --upgrade --quiet"
    assert " ".join(step(found, "driver").argv) == f"bash {driver} --nox11 --upgrade --quiet"
    assert step(found, "driver").accepts == (0, 2)


@pytest.mark.parametrize("family", SUPPORTED)
def test_a_downgrade_uninstalls_both_and_is_a_first_install_then(family):
    has = server(family, driver="26.0.RC1", firmware="9.0.0.0.205", firmware_range=["9.0.0–9.9.99"])
    found = made(has, driver="25.5.2", firmware="7.8.0.6.201")
    assert found.mode == "downgrade"
    assert keys(found.steps, "host") == [
        *BEFORE, "check_driver", "check_firmware", "free", "uninstall_driver", "uninstall_firmware", "driver",
        "firmware", *AFTER,
    ]  # fmt: skip
    assert step(found, "driver").argv[2:] == ("--nox11", "--full", "--quiet", "--install-for-all")
    assert any("no usable NPU" in text.en for text in found.warnings)


def test_a_downgrade_below_what_the_cann_takes_is_refused():
    found = made(server(**PAIRED), driver="25.0.RC1", firmware="7.7.0.1.231")
    assert [refusal.code for refusal in found.refusals] == ["driver_below_minimum"]
    assert not found.steps


@pytest.mark.parametrize("family", ["A1", "310B"])
@pytest.mark.parametrize("stack", [NEW, OLD], ids=lambda stack: stack.name)
def test_chips_that_vllm_ascend_does_not_support_are_refused(family, stack):
    found = made(server(family), stack)
    assert [refusal.code for refusal in found.refusals] == ["unsupported_chip"]
    assert CHIPS[family][0] in found.refusals[0].text.zh and not found.steps


def test_a_stack_that_was_not_made_for_the_chip_is_refused():
    assert made(server("A5", **PAIRED), OLD).refusals[0].code == "chip_not_in_stack"
    assert made(server("A3", **PAIRED), KNOWN.stacks["vllm-ascend-0.9.1"]).refusals[0].code == "chip_not_in_stack"


@pytest.mark.parametrize(
    ("has", "code"),
    [
        ({"pci": []}, "no_npu"),
        ({"pci": None}, "unknown"),
        ({"arch": None}, "unknown"),
        ({"arch": "riscv64"}, "arch"),
    ],
)
def test_what_is_not_known_of_a_server_is_not_guessed(has, code):
    found = made(server("A2", chip="", **has))
    assert code in [refusal.code for refusal in found.refusals]
    assert verdict.summed(found).word == ("unknown" if code == "unknown" else "cannot")


@pytest.mark.parametrize("family", SUPPORTED)
def test_cann_goes_on_as_toolkit_operators_of_the_chip_nnal(family):
    found = made(server(family, **PAIRED))
    folder = "/opt/ascend-console/stacks/vllm-ascend-0.23.0/ascend"
    assert keys(found.steps, "cann") == [
        "room", "group", "check_toolkit", "toolkit", "check_ops", "ops", "check_nnal", "nnal",
    ]  # fmt: skip
    assert " ".join(step(found, "ops").argv) == (
        f"bash {PACKAGES}/{OPS[family]} --install --quiet --install-path={folder}"
    )
    nnal = step(found, "nnal").argv
    assert nnal[:2] == ("bash", "-c") and nnal[4] == f"{folder}/cann/set_env.sh" and nnal[5] == "--"
    assert not any(step(found, key).needs_root for key in ("toolkit", "ops", "nnal"))
    assert f"{PACKAGES}/{OPS[family]}" in found.files


def test_a_family_may_need_another_cann_than_the_row():
    stack = KNOWN.stacks["vllm-ascend-0.25.1rc1"]
    assert "9.1.0-beta.1" in step(made(server("310P", **PAIRED), stack), "toolkit").argv[1]
    assert "9.0.1" in step(made(server("A2", **PAIRED), stack), "toolkit").argv[1]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ([], ["toolkit --full", "ops --install", "nnal --install"]),
        (["8.5.1"], ["toolkit --upgrade", "ops --upgrade", "nnal --upgrade"]),
        (
            ["9.2.0"],
            ["uninstall_nnal --uninstall", "uninstall_ops --uninstall", "uninstall_toolkit --uninstall",
             "toolkit --full", "ops --install", "nnal --install"],
        ),
    ],
)  # fmt: skip
def test_a_shared_cann_is_upgraded_and_a_newer_one_uninstalled_before(there, wanted):
    found = made(server(**PAIRED, cann=there, ops=there, nnal=there), cann="shared")
    of_root = [s for s in found.steps if s.layer == "cann" and s.action and s.action[0].startswith("package")]
    assert [f"{s.key} {s.argv[-2]}" for s in of_root] == wanted
    assert all(s.argv[-1] == "--quiet" and s.to_its_end for s in of_root)
    removed = [s.package.rsplit("/", 1)[1] for s in of_root if s.key.startswith("uninstall")]
    assert all("9.2.0" in name for name in removed)
    assert bool(removed) == any("is uninstalled" in text.en for text in found.warnings)


def test_older_canns_call_their_operators_kernels():
    stack = KNOWN.stacks["vllm-ascend-0.11.0"]
    assert step(made(server("A3", **PAIRED, python="3.11.9"), stack), "ops").package.endswith(
        "Atlas-A3-cann-kernels_8.3.RC2_linux-aarch64.run"
    )


def test_everything_there_is_satisfied_with_its_evidence():
    found = made(server(**WHOLE, packages=PACKAGES_0_23))
    assert [step.state for step in found.steps] == ["satisfied"] * 6
    evidence = {step.key: step.evidence for step in found.steps}
    assert evidence["driver"] == Evidence("/usr/local/Ascend/driver/version.info", "Version=25.5.2")
    assert evidence["toolkit"].file.endswith("/aarch64-linux/ascend_toolkit_install.info")
    assert evidence["packages"].value.startswith("torch 2.10.0, torch-npu 2.10.0.post4")
    assert verdict.summed(found).word == "matches" and not found.locks and not found.addresses


def test_what_no_file_tells_of_does_not_make_a_stack_that_is_there_incomplete():
    nnal = [{"version": None, "path": "/usr/local/Ascend/nnal/atb"}]
    has = server(**{**WHOLE, "ops": ()}, packages=PACKAGES_0_23)
    has = dataclasses.replace(has, nnal=installed.read({"nnal": nnal}, "", KNOWN).nnal)
    found = made(has)
    assert step(found, "nnal").evidence == Evidence("/usr/local/Ascend/nnal/atb/set_env.sh", "")
    assert step(found, "ops").state == "look"
    told = verdict.summed(found)
    assert told.word == "matches" and told.because[0].en.endswith("no file tells of: CANN operators.")
    older = made(server(**{**WHOLE, "ops": ["8.5.1"]}, packages=PACKAGES_0_23))
    assert step(older, "ops").state == "run" and verdict.summed(older).word == "reachable"
    lacking = made(server(**{**WHOLE, "nnal": ()}, packages=PACKAGES_0_23))
    assert step(lacking, "nnal").state == "run" and verdict.summed(lacking).word == "reachable"


@pytest.mark.parametrize("missing", ["torch", "torch_npu", "vllm", "vllm_ascend"])
def test_one_package_of_another_version_is_no_match(missing):
    found = made(server(**WHOLE, packages={**PACKAGES_0_23, missing: "0.0.1"}))
    assert verdict.summed(found).word == "reachable"
    assert "vllm_ascend" in keys(found.to_run)


def test_an_upgrade_of_the_environment_leaves_the_host_and_the_old_stack():
    has = server(**PAIRED, cann=["8.5.1"], ops=["8.5.1"], nnal=["8.5.1"], packages=PACKAGES_0_18)
    assert verdict.of(server(**PAIRED, cann=["8.5.1"], ops=["8.5.1"], nnal=["8.5.1"], packages=PACKAGES_0_18,
                             python="3.11.9"), OLD, KNOWN).word == "matches"  # fmt: skip
    found = made(has)
    assert found.mode == "none" and not found.reboots and found.locks == ("stack",)
    assert not any("--uninstall" in s.argv or "--upgrade" in s.argv for s in found.steps)
    assert all("/usr/local/Ascend" not in " ".join(s.argv) for s in found.to_run)


def test_the_python_layers_stand_in_the_documented_order():
    found = made(server(**WHOLE))
    assert keys(found.steps, "python") == [
        "venv", "vllm", "triton_out", "vllm_ascend", "triton_out_again", "triton", "activate", "smoke",
        "one_prompt", "use",
    ]  # fmt: skip
    own = {"PIP_EXTRA_INDEX_URL": "https://pypi.org/simple", "PIP_CONSTRAINT": "/dev/null"}  # over pip's own settings
    assert dict(step(found, "vllm").env) == {"VLLM_TARGET_DEVICE": "empty", **own}
    assert step(found, "vllm").argv[-1] == "vllm==0.23.0"
    plugin = step(found, "vllm_ascend").argv
    assert plugin[4:7] == ("/usr/local/Ascend/cann-9.1.0/set_env.sh", "/usr/local/Ascend/nnal/atb/set_env.sh", "--")
    assert {"torch==2.10.0", "torch-npu==2.10.0.post4", "vllm-ascend==0.23.0", "fastapi<0.124.0"} <= set(plugin)
    assert step(found, "triton").argv[-1] == "triton-ascend==3.2.2"


def test_310p_has_no_triton():
    assert "triton" not in keys(made(server("310P", **WHOLE)).steps)


def test_wheels_come_in_layers_from_a_folder_and_no_address_is_called():
    found = made(server(**WHOLE), layering="wheels", wheelhouse="/opt/wheels")
    assert found.addresses == ()
    assert keys(found.steps, "python")[:4] == ["venv", "vllm", "vllm_list", "vllm_rest"]
    pips = [s.argv for s in found.steps if "install" in s.argv]
    assert pips and all("--no-index" in argv and "--index-url" not in argv for argv in pips)
    assert "--no-deps" in step(found, "vllm").argv


def test_every_address_is_named():
    assert made(server(**WHOLE)).addresses == (
        "https://pypi.org/simple", "https://files.pythonhosted.org", "https://mirrors.huaweicloud.com/ascend/repos/pypi/variant",
        "https://mirrors.huaweicloud.com/ascend/repos/pypi",
    )  # fmt: skip
    calls = made(server(**WHOLE), route="container").addresses
    assert calls[:2] == ("quay.io", "cdn.quay.io") and len(calls) == 8


def test_an_old_glibc_goes_into_a_container_where_there_is_a_runtime():
    found = made(server(**PAIRED, glibc="2.28", os="Kylin Linux Advanced Server V10 (Halberd)"))
    assert found.route == "container"
    pull = " ".join(step(found, "image").argv)
    assert pull == "docker pull --platform linux/arm64 quay.io/ascend/vllm-ascend:v0.23.0-openeuler"
    refused = made(server(**PAIRED, glibc="2.28", containers=[]))
    assert {refusal.code for refusal in refused.refusals} == {"no_container"}
    assert any("2.34" in refusal.text.en for refusal in refused.refusals)


def test_a_container_sees_one_npu_and_the_hosts_driver():
    found = made(server("A3", **PAIRED, os="Ubuntu 22.04.4 LTS"), route="container", image_archive="/data/image.tar")
    assert step(found, "image").argv == ("docker", "load", "-i", "/data/image.tar")
    assert step(found, "smoke").argv[1:3] == ("-m", "deployments.stacks.one_npu") and step(found, "smoke").skips == (3,)
    smoke = step(found, "smoke").argv[3:]
    assert smoke[:3] == ("docker", "run", "--rm") and smoke[5:7] == ("--shm-size", "1g")
    assert "quay.io/ascend/vllm-ascend:v0.23.0-a3" in smoke
    assert [smoke[i + 1] for i, word in enumerate(smoke) if word == "--device"] == [
        "/dev/davinci{npu}", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc",
    ]  # fmt: skip


def test_a_python_out_of_range_is_passed_over_for_one_that_fits():
    other = [{"path": "/opt/python3.11/bin/python3.11", "version": "3.11.9", "packages": {}}]
    found = made(server(**WHOLE, python="3.13.1", pythons=other))
    assert step(found, "venv").argv[0] == "/opt/python3.11/bin/python3.11"
    refused = made(server(**WHOLE, python="3.13.1", containers=[]))
    assert any(">=3.10,<3.13" in refusal.text.en for refusal in refused.refusals)


def test_a_firmware_outside_what_the_driver_accepts_is_put_right_alone():
    has = server("A3", driver="25.3.rc1", firmware="7.1.0.11.220", firmware_range=["7.7.0–7.9.99"])
    found = made(has)
    assert found.mode == "firmware"
    assert keys(found.steps, "host") == [*BEFORE, "check_firmware", "free", "firmware", *AFTER]
    assert step(found, "firmware").package.endswith("Atlas-A3-hdk-npu-firmware_7.8.0.2.212.run")
    assert made(has, firmware="9.0.0.0.205").refusals[0].code == "firmware_not_accepted"


def test_a_version_that_no_source_tells_is_asked_for():
    found = made(server("A2"))
    assert "26.0.RC1" in found.gaps[0].en and not found.can_run
    assert verdict.summed(found).word == "reachable" and verdict.summed(found).gaps


def test_nothing_of_the_host_changes_while_somebody_holds_an_npu():
    holders = [
        Holder(4242, "zhangwei", "python", "0.0"), Holder(77, "root", "npu-exporter", "", "exporter-1"),
        Holder(5151, "HwHiAiUser", "VLLMWorker", "1.0", ours=True, job=9),
    ]  # fmt: skip
    found = plan.make(server("A3"), NEW, KNOWN, holders=holders, npus=["0000:9D:00.0"])
    assert not found.can_run and len(found.blocked) == 3
    assert "PID 4242 (zhangwei) python NPU 0.0" in found.blocked[0].en
    assert "exporter-1" in found.blocked[1].en and "#9" in found.blocked[2].en
    assert found.locks == ("stack", "npu:0000:9D:00.0")
    free = plan.make(server(**PAIRED), NEW, KNOWN, holders=holders)
    assert free.blocked == ()  # the environment goes beside what runs
    assert plan.make(server("A3"), NEW, KNOWN, holders=None).blocked
