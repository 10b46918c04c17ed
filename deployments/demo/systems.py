"""The operating systems of the simulated servers, as their files and tools tell of them."""

from typing import NamedTuple

from deployments.demo.fleet import DemoServer


class System(NamedTuple):
    name: str
    id: str
    version: str
    version_id: str
    kernel: str
    glibc: str
    python: str
    docker: str | None

    @property
    def os_release(self) -> str:
        return (
            f'NAME="{self.name}"\nVERSION="{self.version}"\nID="{self.id}"\nVERSION_ID="{self.version_id}"\n'
            f'PRETTY_NAME="{self.name} {self.version}"\nANSI_COLOR="0;31"\n'
        )


SYSTEMS = {
    "openeuler-22.03": System(
        "openEuler",
        "openEuler",
        "22.03 (LTS-SP4)",
        "22.03",
        "5.10.0-216.0.0.115.oe2203sp4.aarch64",
        "2.34",
        "3.9.9",
        "26.1.4",
    ),
    "openeuler-24.03": System(
        "openEuler",
        "openEuler",
        "24.03 (LTS-SP1)",
        "24.03",
        "6.6.0-72.0.0.76.oe2403sp1.aarch64",
        "2.38",
        "3.11.6",
        "27.3.1",
    ),
    "kylin-v10": System(
        "Kylin Linux Advanced Server",
        "kylin",
        "V10 (Halberd)",
        "V10",
        "4.19.90-89.11.v2401.ky10.aarch64",
        "2.28",
        "3.7.9",
        None,
    ),
    "centos-7": System(
        "CentOS Linux", "centos", "7 (AltArch)", "7", "4.14.0-115.el7a.0.1.aarch64", "2.17", "3.6.8", None
    ),
}


def of(server: DemoServer) -> System:
    return SYSTEMS[server.stack.system]


INTERFACES = ("enp125s0f0", "enp125s0f1")  # management, service
# CANN -> what an environment made for it holds, by distribution (rows of the published matrix).
VLLM = {
    "9.1.0": {"torch": "2.10.0+cpu", "torch_npu": "2.10.0.post4", "vllm": "0.23.0", "vllm_ascend": "0.23.0"},
    "8.5.1": {"torch": "2.9.0+cpu", "torch_npu": "2.9.0", "vllm": "0.18.0", "vllm_ascend": "0.18.0"},
}

# What CANN's operator compiler imports, by distribution.
CANN_NEEDS = {
    "attrs": "25.4.0", "numpy": "1.26.4", "decorator": "5.2.1", "sympy": "1.14.0", "cffi": "2.0.0", "pyyaml": "6.0.3",
    "psutil": "7.1.3", "protobuf": "6.33.1", "scipy": "1.13.1", "requests": "2.32.5", "absl_py": "2.3.1",
}  # fmt: skip

CPU_MODEL = "Kunpeng-920"


def cpus(server: DemoServer) -> int:
    """Cores of the host: two sockets of 48 beside inference cards, four elsewhere."""
    return 96 if server.spec.layout == "p" else 192


def memory_mb(server: DemoServer) -> int:
    return (384 if server.spec.layout == "p" else 1536) * 1024


def lscpu(server: DemoServer) -> str:
    count = cpus(server)
    rows = [
        ("Architecture", "aarch64"), ("CPU op-mode(s)", "64-bit"), ("Byte Order", "Little Endian"), ("CPU(s)", count),
        ("On-line CPU(s) list", f"0-{count - 1}"), ("Thread(s) per core", 1), ("Core(s) per socket", 48),
        ("Socket(s)", count // 48), ("NUMA node(s)", count // 24), ("Vendor ID", "HiSilicon"), ("Model", 0),
        ("Model name", CPU_MODEL), ("BIOS Model name", "HUAWEI Kunpeng 920 5250"), ("CPU max MHz", "2600.0000"),
    ]  # fmt: skip
    rows += [(f"NUMA node{node} CPU(s)", f"{node * 24}-{node * 24 + 23}") for node in range(count // 24)]
    return "".join(f"{name + ':':<33}{value}\n" for name, value in rows)


def address(server: DemoServer) -> str:
    """Of its management interface."""
    row, place = divmod(server.index, 250)
    return f"198.19.{row}.{place + 2}"


def addresses(server: DemoServer) -> str:
    """`ip -o addr show`: loopback, a management and a service interface, from the range for benchmarks."""
    row, place = divmod(server.index, 250)
    first, second = INTERFACES
    lines = ["1: lo    inet 127.0.0.1/8 scope host lo"]
    for n, (name, net) in enumerate(((first, "198.19"), (second, "198.18")), 2):
        lines.append(f"{n}: {name}    inet {net}.{row}.{place + 2}/16 brd {net}.255.255 scope global {name}")
    return "".join(f"{line}\\       valid_lft forever preferred_lft forever\n" for line in lines)
