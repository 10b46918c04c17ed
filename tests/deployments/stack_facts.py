"""Facts of servers for tests of stacks, in the shape that agents send them."""

from deployments.stacks import installed
from deployments.stacks.catalogue import built_in

# What each family's server looks like with nothing of Ascend installed.
CHIPS = {
    "A2": ("910B3", "d802"),
    "A3": ("Ascend910", "d803"),
    "310P": ("310P3", "d500"),
    "A5": ("Ascend950PR", "d806"),
    "A1": ("910A", "d801"),
    "310B": ("310B1", "d105"),
}


def facts(family="A2", *, cann=(), nnal=(), ops=(), packages=None, where="/opt/tools/venv/bin/python3.12", **more):
    """Facts of an openEuler 24.03 server. `cann`, `nnal`, `ops` are versions; `packages` those of one environment."""
    ascend = "/usr/local/Ascend"
    made = {
        "arch": "aarch64",
        "os": "openEuler 24.03 (LTS-SP1)",
        "kernel": "6.6.0-72.0.0.76.oe2403sp1.aarch64",
        "glibc": "2.38",
        "python": "3.12.7",
        "driver": None,
        "firmware": None,
        "firmware_range": None,
        "cann_all": [{"version": version, "path": f"{ascend}/cann-{version}"} for version in cann],
        "ops": [{"version": version, "path": f"{ascend}/cann-{version}/aarch64-linux"} for version in ops],
        "nnal": [{"version": version, "path": f"{ascend}/nnal/atb/{version}"} for version in nnal],
        "pythons": [{"path": where, "version": "3.12.7", "packages": packages}] if packages else [],
        "containers": [{"name": "docker", "version": "27.3.1"}],
        "pci": [{"bus_id": "0000:C1:00.0", "device": CHIPS[family][1]}],
    }
    return {**made, **more}


def server(family="A2", *, chip=None, **more):
    """Installed of such a server."""
    return installed.read(facts(family, **more), CHIPS[family][0] if chip is None else chip, built_in())


PACKAGES_0_23 = {"torch": "2.10.0", "torch_npu": "2.10.0.post4", "vllm": "0.23.0+empty", "vllm_ascend": "0.23.0"}
PACKAGES_0_18 = {"torch": "2.9.0", "torch_npu": "2.9.0", "vllm": "0.18.0+empty", "vllm_ascend": "0.18.0"}
