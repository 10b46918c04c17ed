"""The driver's modules, library, nodes and what its installer needs, against files of servers."""

import os
from types import SimpleNamespace

import pytest

from deployments.kinds.check_probes import driver, next_kernel
from tests.deployments.check_bench import DRIVER, NPU, FileHost

NOW, NEXT = "5.10.0-216.oe2203sp4.aarch64", "5.10.0-230.oe2203sp4.aarch64"
UNAME = {"uname": (0, f"{NOW}\n")}
LOADED = {"/proc/modules": "drv_pcie_host 65536 1 - Live 0x0 (OE)\nxfs 1 0 - Live 0x0\n"}
HAL = "/usr/local/Ascend/driver/lib64/driver/libascend_hal.so"


@pytest.fixture
def server(tmp_path):
    return lambda files=(), tools=(), env=(): FileHost(tmp_path, files, tools, env)


def built(kernel, folder="updates"):
    return {f"/lib/modules/{kernel}/{folder}/drv_pcie_host.ko": ""}


# ---------- modules ----------


@pytest.mark.parametrize(
    ("files", "modinfo", "verdict", "word"),
    [
        ({}, None, "unknown", ""),
        (NPU, None, "unknown", ""),
        (DRIVER, None, "failed", "—"),
        ({**DRIVER, **built(NOW)}, None, "failed", "lsmod: 0"),
        ({**DRIVER, **built(NOW), **LOADED}, None, "ok", "1 × drv_*.ko"),
        ({**DRIVER, **built(NOW, "updates/dkms"), **LOADED}, (0, f"{NOW} SMP\n"), "ok", "lsmod: 1"),
        ({**DRIVER, **built(NOW), **LOADED}, (0, f"{NEXT} SMP\n"), "failed", f"vermagic {NEXT}"),
        ({**DRIVER, **built(NOW), **LOADED}, (1, "not found\n"), "ok", "lsmod: 1"),
    ],
)
def test_modules_are_built_for_the_running_kernel_and_loaded(server, files, modinfo, verdict, word):
    tools = {**UNAME, **({"modinfo": modinfo} if modinfo else {})}
    found = driver.running_modules(server(files, tools))
    assert found.verdict == verdict and word in found.found


# ---------- the next kernel ----------

BOTH = {f"/boot/vmlinuz-{NOW}": "", f"/boot/vmlinuz-{NEXT}": "", "/boot/vmlinuz-0-rescue-6f1a": ""}


def grub(kernel):
    return {"/boot/grub2/grub.cfg": f"menuentry 'openEuler' {{\n\tlinux\t/vmlinuz-{kernel} root=/dev/sda2 ro\n}}\n"}


@pytest.mark.parametrize(
    ("files", "kernel"),
    [
        ({}, None),
        ({f"/boot/vmlinuz-{NOW}": ""}, NOW),
        (BOTH, None),
        ({**BOTH, **grub(NEXT)}, NEXT),
        ({**BOTH, **grub(NOW)}, NOW),
        ({**BOTH, **grub(NEXT), "/boot/grub2/grubenv": f"# GRUB\nsaved_entry=openEuler ({NOW}) 22.03\n####"}, NOW),
        ({**BOTH, **grub(NOW), "/boot/grub2/grubenv": f"saved_entry=6f1a-{NEXT}\n####"}, NEXT),
        ({**BOTH, **grub(NOW), "/etc/default/grub": f'GRUB_DEFAULT="Advanced>Linux {NEXT}"\n'}, NEXT),
        ({**BOTH, **grub(NOW), "/etc/default/grub": 'GRUB_DEFAULT="1>2"\n'}, None),
    ],
)
def test_the_next_kernel_is_the_one_that_grub_takes(server, files, kernel):
    assert next_kernel.next_kernel(server(files), NOW).kernel == kernel


def test_a_boot_loader_that_takes_root_is_unknown_with_the_command(server, monkeypatch):
    host = server({**BOTH, **grub(NOW)})
    monkeypatch.setattr(os, "open", refuse(os.open, "grub"))
    found = next_kernel.next_kernel(host, NOW)
    assert found.kernel is None and "grubby --default-kernel" in found.why.en


def refuse(really, word):
    def opened(path, *rest, **more):
        if word in str(path):
            raise PermissionError(13, "Permission denied")
        return really(path, *rest, **more)

    return opened


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({**DRIVER, **BOTH, **grub(NOW)}, "ok"),
        ({**DRIVER, **BOTH, **grub(NEXT)}, "warning"),
        ({**DRIVER, **BOTH, **grub(NEXT), **built(NEXT)}, "ok"),
        ({**DRIVER, **BOTH}, "unknown"),
        ({**BOTH, **grub(NEXT)}, "unknown"),
    ],
)
def test_the_driver_must_have_modules_for_the_next_kernel(server, files, verdict):
    assert driver.modules_of_next(server(files, UNAME)).verdict == verdict


# ---------- library and nodes ----------


@pytest.mark.parametrize(
    ("files", "env", "verdict"),
    [
        ({}, {}, "unknown"),
        (DRIVER, {}, "failed"),
        ({**DRIVER, HAL: ""}, {}, "failed"),
        ({**DRIVER, HAL: ""}, {"LD_LIBRARY_PATH": "/opt/x:/usr/local/Ascend/driver/lib64/driver/"}, "ok"),
        ({**DRIVER, HAL: "", "/etc/ld.so.conf.d/a.conf": "/usr/local/Ascend/driver/lib64/driver\n"}, {}, "ok"),
        ({**DRIVER, HAL: "", "/etc/ld.so.conf.d/a.conf": "# /usr/local/Ascend/driver/lib64/driver\n"}, {}, "failed"),
    ],
)
def test_the_loader_must_find_the_drivers_library(server, files, env, verdict):
    assert driver.loader(server(files, env=env)).verdict == verdict


def test_nodes_that_the_account_may_not_open_are_named_with_their_group(server, monkeypatch):
    nodes = {f"/dev/{name}": "" for name in ("davinci0", "davinci1", "davinci_manager", "devmm_svm", "hisi_hdc")}
    host = server({**NPU, **nodes})
    assert driver.device_rights(host).verdict == "ok"
    host.write("/etc/group", f"root:x:0:\nHwHiAiUser:x:{host.path('/dev/davinci1').stat().st_gid}:\n")
    closed = host.path("/dev/davinci1")
    monkeypatch.setattr(driver.os, "access", lambda path, mode: path != closed)
    found = driver.device_rights(host)
    assert (found.verdict, found.found) == ("failed", "− davinci1")
    group = next(line for line in host.peek("/etc/group").splitlines() if f":{closed.stat().st_gid}:" in line)
    assert f"usermod -aG {group.split(':')[0]} " in found.remedy.en


def test_without_nodes_rights_are_not_known(server):
    assert driver.device_rights(server({"/dev/null": ""})).verdict == "unknown"


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({}, "unknown"),
        (DRIVER, "failed"),
        ({**DRIVER, "/usr/local/sbin/npu-smi": ""}, "warning"),
        ({**DRIVER, "/usr/local/sbin/npu-smi": "", "/usr/local/bin/npu-smi": ""}, "ok"),
    ],
)
def test_npu_smi_lies_where_containers_mount_it_from(server, files, verdict):
    assert driver.smi_place(server(files)).verdict == verdict


# ---------- what the installer needs ----------


@pytest.mark.parametrize(("system", "command"), [("ubuntu", "apt-get install -y"), ("openEuler", "yum install -y")])
def test_missing_commands_of_the_installer_are_named_by_their_packages(server, system, command):
    host = server(
        {"/etc/os-release": f"ID={system}\nNAME=x\n", "/usr/bin/make": "", "/usr/sbin/dkms": "", "/bin/gcc": ""}
    )
    found = driver.install_tools(host)
    assert (found.verdict, found.found) == ("warning", "− lspci, ifconfig")
    assert f"{command} pciutils net-tools" in found.remedy.en
    host.write("/usr/bin/lspci")
    host.write("/sbin/ifconfig")
    assert driver.install_tools(host).verdict == "ok"


@pytest.mark.parametrize(
    ("versions", "verdict"), [(["12"], "ok"), (["15"], "warning"), (["13", "15"], "ok"), ([], "ok")]
)
def test_a_compiler_that_is_too_new_is_a_warning(server, versions, verdict):
    files = {"/usr/bin/gcc": "", "/usr/bin/g++": ""}
    files |= {f"/usr/lib/gcc/aarch64-linux-gnu/{version}/": "" for version in versions}
    assert driver.compiler(server(files)).verdict == verdict


def test_without_a_compiler_nothing_can_be_built(server):
    assert driver.compiler(server({"/usr/bin/gcc": ""})).found == "− g++"


def test_folders_above_the_driver_belong_to_root(tmp_path, monkeypatch):
    host = FileHost("/")
    monkeypatch.setattr(driver.os, "stat", lambda path: SimpleNamespace(st_uid=1000 if path == "/usr" else 0))
    (found,) = driver.parents(host)
    assert (found.verdict, found.found) == ("warning", "/usr")
    assert driver.parents(FileHost(tmp_path)) == []  # owners of a simulated server's files say nothing


AUDIT = (
    "The following packages are only half configured, probably due to problems\nconfiguring them the first time:\n"
    " dkms                 Dynamic Kernel Module System (DKMS)\n"
)


@pytest.mark.parametrize(
    ("files", "tools", "verdict", "word"),
    [
        ({"/var/lib/dpkg/": ""}, {"dpkg": (0, "")}, "ok", "0"),
        ({"/var/lib/dpkg/": ""}, {"dpkg": (0, AUDIT)}, "failed", "dkms"),
        ({"/var/lib/dpkg/updates/0001": ""}, {"dpkg": (0, "")}, "failed", "updates/0001"),
        ({}, {"rpm": (0, "bash.aarch64\nkernel.aarch64\nkernel.aarch64\n")}, "ok", "0"),
        ({}, {"rpm": (0, "bash.aarch64\nzlib.aarch64\nzlib.aarch64\n")}, "failed", "zlib.aarch64"),
        ({"/var/lib/yum/transaction-all.2026": ""}, {"rpm": (0, "bash.aarch64\n")}, "failed", "transaction-all.2026"),
        ({}, {}, "unknown", "—"),
    ],
)
def test_packages_that_were_left_half_configured_are_named(server, files, tools, verdict, word):
    found = driver.packages(server(files, tools))
    assert found.verdict == verdict and word in found.found
