"""The argument list of an engine in a container: an image of the stack, the NPUs' devices, the model read only."""

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.stacks.container import MANAGERS, MOUNTS, SEVERAL_HOSTS

STOP_S = 30
SHM = {"310P": "10g"}
SECRET = "VLLM_API_KEY"  # its value goes by the environment of the client, so that no list of processes shows it
# The keeper finds the device indexes anew at each start: in-container RUNTIME run …, with a device for each of them
# behind the two words. Inside, the NPUs are those whose devices are there, counted anew: the variable stays outside.
IN_CONTAINER = (
    'devices=(); IFS=,; for n in $ASCEND_RT_VISIBLE_DEVICES; do devices+=(--device "/dev/davinci$n"); done; '
    'unset IFS ASCEND_RT_VISIBLE_DEVICES; exec "$1" "$2" "${devices[@]}" "${@:3}"'
)


def command(spec: Mapping[str, Any]) -> list[str]:
    """What the keeper starts: the client in the foreground. The text of the shell is fixed."""
    return ["bash", "-c", IN_CONTAINER, "in-container", *run(spec)]


def run(spec: Mapping[str, Any], devices: Sequence[int] = ()) -> list[str]:
    """`podman run …` of what `spec` holds; `devices` are indexes of /dev/davinciN."""
    runtime, image, name = str(spec["route"]), str(spec["image"]), str(spec["container"])
    words = [runtime, "run"]
    for index in devices:
        words += ["--device", f"/dev/davinci{index}"]
    words += ["--rm", "--name", name, "--net", "host", "--ipc", "private", "--stop-timeout", str(STOP_S)]
    words += ["--shm-size", next((size for chip, size in SHM.items() if str(spec["family"]).startswith(chip)), "1g")]
    if spec["npus"]:
        for one in MANAGERS:
            words += ["--device", f"/dev/{one}"]
        for path in [*MOUNTS, *(SEVERAL_HOSTS if spec.get("several") else ())]:
            words += ["-v", f"{path}:{path}:ro"]
    words += ["-v", f"{spec['model']}:{spec['model']}:ro"]
    for variable, value in dict(spec["env"]).items():
        words += ["-e", f"{variable}={value}"]
    return [*words, "-e", SECRET, "--entrypoint", str(spec["inner"][0]), image, *map(str, spec["inner"][1:])]


def stop(runtime: str, name: str) -> list[str]:
    return [runtime, "stop", "--time", str(STOP_S), name]


def remove(runtime: str, name: str) -> list[str]:
    return [runtime, "rm", "-f", name]
