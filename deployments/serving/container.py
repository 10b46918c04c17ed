"""The argument list of an engine in a container: an image of the stack, the NPUs' devices, the model read only."""

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.stacks.container import MANAGERS, MOUNTS, SEVERAL_HOSTS

STOP_S = 30
SHM = {"310P": "10g"}
SECRET = "VLLM_API_KEY"  # its value goes by the environment of the client, so that no list of processes shows it


def run(spec: Mapping[str, Any], devices: Sequence[int]) -> list[str]:
    """`podman run …` in the foreground, of what `spec.json` holds; `devices` are indexes of /dev/davinciN."""
    runtime, image, name = str(spec["route"]), str(spec["image"]), str(spec["container"])
    words = [runtime, "run", "--rm", "--name", name, "--net", "host", "--ipc", "private", "--stop-timeout", str(STOP_S)]
    words += ["--shm-size", next((size for chip, size in SHM.items() if str(spec["family"]).startswith(chip)), "1g")]
    if devices:
        for one in [*(f"davinci{index}" for index in devices), *MANAGERS]:
            words += ["--device", f"/dev/{one}"]
        several = SEVERAL_HOSTS if spec.get("several") else ()
        for path in [*MOUNTS, *several]:
            words += ["-v", f"{path}:{path}:ro"]
    words += ["-v", f"{spec['model']}:{spec['model']}:ro"]
    for variable, value in dict(spec.get("env") or {}).items():
        words += ["-e", f"{variable}={value}"]
    return [*words, "-e", SECRET, "--entrypoint", str(spec["inner"][0]), image, *map(str, spec["inner"][1:])]


def stop(runtime: str, name: str) -> list[str]:
    return [runtime, "stop", "--time", str(STOP_S), name]


def remove(runtime: str, name: str) -> list[str]:
    return [runtime, "rm", "-f", name]
