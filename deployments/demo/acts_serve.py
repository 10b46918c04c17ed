"""Engines of deployments acted out: the model is looked at, loads in its shards, and answers once; nothing is loaded.

An engine stays until a job stops it: `served.py` remembers it, so that npu-smi shows its processes and memory.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deployments.agent.serving.idle import MARGIN_MB
from deployments.agent.serving.stop import DRAIN
from deployments.demo import models, served, tables
from deployments.demo.fleet import Chip
from deployments.demo.scene import DONE, Act, Ended, Item, Scene, Told
from deployments.demo.served import LOADING, READY, VERSION, Served
from deployments.serving import asked, command, nodes, settings
from deployments.serving.asked import Ask
from deployments.serving.fields import Settings
from deployments.serving.idle import by_chip
from deployments.steps import BadParams, Text

OWN = "deployments.agent.serving."
ROOT = ("engine-unit", "engine-start", "engine-tidy", "engine-remove")
NOTHING = 3
SHARD_S, GRAPHS_S, SLOW_S = 1.5, 6.0, 24 * 3600.0
SIMULATED = Text("模拟引擎：没有加载任何模型。", "A simulated engine: no model is loaded.")
LOADS = Text("加载权重", "Loading weights")
MEMORY = Text(
    "NPU 显存不足：权重与 KV 缓存放不下。请减小最大长度，或用更多 NPU。",
    "The NPUs have too little memory for weights and KV cache. Choose a smaller greatest length, or more NPUs.",
)
FLAG = Text(
    "引擎不认识参数 --no-such-flag。请在新的版本里去掉它。",
    "The engine does not know the flag --no-such-flag. Leave it out in a new revision.",
)
LOOP = Text("引擎在就绪前反复退出（6 次）。", "The engine ended again and again before it was ready (6 times).")
LAST_WORDS = {
    "out_of_memory": (MEMORY, "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 1.50 GiB"),
    "unknown_flag": (FLAG, "api_server.py: error: unrecognized arguments: --no-such-flag"),
    "crash_loop": (LOOP, "RuntimeError: Engine process failed to start."),
}


def of(name: str, words: list[str], env: Mapping[str, str], scene: Scene, fault: str) -> Act:
    """One program of `deployments/agent/serving/`."""
    program = name.removeprefix(OWN)
    drains = next((float(word.removeprefix(DRAIN)) for word in words if word.startswith(DRAIN)), 0.0)
    ask = asked.read([word for word in words if not word.startswith(DRAIN)], env)
    acts = {
        "look": lambda: _look(scene, ask, fault),
        "put": lambda: _put(ask),
        "start": lambda: _start(scene, ask),
        "await_ready": lambda: _await(scene, ask, fault),
        "try_one": lambda: _try_one(scene, ask),
        "settle": lambda: _settle(scene, ask),
        "stop": lambda: _stop(scene, ask, drains),
        "idle": lambda: _idle(scene, ask, fault),
    }
    return acts[program]()


def root(words: list[str]) -> Act:
    """What systemd would say of the unit."""
    yield f"simulated: {' '.join(words)}"
    yield 0.3
    return DONE


def chips_of(scene: Scene, names: tuple[str, ...]) -> dict[str, Chip | None]:
    """{name: the chip that npu-smi lists under it now, None where it lists none}."""
    there: dict[str, Chip] = {}
    for chip in tables.shown(scene.server):
        there |= {chip.bus_id.upper(): chip, f"{chip.bus_id.upper()}/{chip.chip}": chip}
    return {name: there.get(name.upper()) for name in names}


# ---------- start ----------


def _look(scene: Scene, ask: Ask, fault: str) -> Act:
    yield f"{SIMULATED.zh} {SIMULATED.en}"
    yield 0.5
    if problem := _problem(scene, ask, fault):
        return Ended(1, problem)
    yield _item("model", Text("模型", "Model"), "ok", ask.fingerprint[:12] or ask.model)
    yield _item("port:http", Text(f"端口 {ask.port}", f"Port {ask.port}"), "ok", ask.address)
    for name in ask.npus:
        yield _item(f"npu:{name}", Text(f"NPU {name}", f"NPU {name}"), "ok", f"OK · {scene.server.spec.idle_mb} MB")
    return DONE


def _problem(scene: Scene, ask: Ask, fault: str) -> Text | None:
    lies = models.there(scene).get(ask.model)
    if lies is None:
        return Text(
            f"{ask.model} 不在这台模拟服务器上，可能已被删除。",
            f"{ask.model} is not on this simulated server; it may have been deleted.",
        )
    if fault == "other_files" or (ask.fingerprint and lies["model"].get("fingerprint") != ask.fingerprint):
        return Text(
            f"{ask.model} 路径相同，但里面是另一份文件。请用现在的模型新建一个版本。",
            f"{ask.model} is the same path with new files. Make a new revision of the model as it is now.",
        )
    if fault == "port_taken":
        return Text(
            f"{ask.address} 的端口 {ask.port} 已被占用。请停止占用它的程序，再重试。",
            f"Port {ask.port} of {ask.address} is taken. Stop the program that has it, then try again.",
        )
    chips = chips_of(scene, ask.npus)
    if lost := [name for name, chip in chips.items() if chip is None]:
        words = ", ".join(lost)
        return Text(f"npu-smi 现在没有列出 {words}。", f"npu-smi does not list {words} now.")
    wanted = {chip.index for chip in chips.values() if chip}
    running = [(one, at, pid) for one in scene.running() for at, pid in zip(one.chips, one.pids, strict=True)]
    if held := [(one.holder, pid) for one, at, pid in running if at in wanted]:
        words = ", ".join(f"PID {pid} ({holder})" for holder, pid in held[:8])
        return Text(f"选定的 NPU 上有其他进程：{words}。", f"Other processes hold NPUs that were chosen: {words}.")
    return None


def _put(ask: Ask) -> Act:
    try:
        chosen = settings.read(ask.settings)
    except BadParams as error:
        name, text = error.problems[0]
        return Ended(1, Text(f"设置 {name}：{text.zh}", f"The setting {name}: {text.en}"))
    yield " ".join(nodes.argv(chosen, nodes.place(ask, len(ask.npus))))
    return DONE


def _start(scene: Scene, ask: Ask) -> Act:
    chosen = settings.read(ask.settings)
    words = nodes.argv(chosen, nodes.place(ask, len(ask.npus)))
    chips = tuple(chip.index for chip in chips_of(scene, ask.npus).values() if chip)
    spec = scene.server.spec
    total = spec.hbm_mb or spec.ddr_mb
    memory_mb = max(200, int(total * chosen.gpu_memory_utilization) - spec.idle_mb)
    at = round(time.time(), 3)
    made = Served(ask.replica, ask.deployment, LOADING, chips, memory_mb, " ".join(words), at)
    made = served.begin(scene.state_dir, made)
    served.say(scene.state_dir, made, f"{SIMULATED.zh} {SIMULATED.en}", f"INFO vLLM API server version {VERSION}")
    yield 0.5
    return DONE


def _await(scene: Scene, ask: Ask, fault: str) -> Act:
    made = served.read(scene.state_dir, ask.replica)
    if made is None:
        return Ended(1, Text("引擎没有启动。", "The engine was not started."))
    model = models.there(scene).get(ask.model, {"model": {}})["model"]
    shards = max(1, min(40, int(model.get("shards") or 1)))
    for n in range(shards + 1):
        if n == shards // 2 and fault == "slow":
            yield SLOW_S
        if n == shards // 2 and fault in LAST_WORDS:
            return _fails(scene, made, *LAST_WORDS[fault])
        yield _progress(scene, made, n, shards)
        yield SHARD_S
    facts = facts_of(model, settings.read(ask.settings), made, scene)
    if facts["available_kv_gib"] is not None and facts["available_kv_gib"] <= 0:
        return _fails(scene, made, MEMORY, f"Available KV cache memory: {facts['available_kv_gib']} GiB")
    yield GRAPHS_S
    yield from _ready(scene, made, facts)
    return DONE


def _progress(scene: Scene, made: Served, n: int, shards: int) -> str:
    """Told by the engine's own log, its state, and the job."""
    progress = {"what": list(LOADS), "done": n, "of": shards}
    served.say(scene.state_dir, made, f"Loading safetensors checkpoint shards: {100 * n // shards:3d}% | {n}/{shards}")
    served.tell(scene.state_dir, made, "engine", state=LOADING, progress=progress, reason=None)
    served.write(scene.state_dir, replace(made, progress=progress))
    return f"{LOADS.zh} {LOADS.en} {n}/{shards}"


def _ready(scene: Scene, made: Served, facts: dict[str, Any]) -> Act:
    made = replace(made, state=READY, ready_at=round(time.time(), 3), progress=None, facts=facts)
    served.write(scene.state_dir, made)
    lines = [f"GPU KV cache size: {facts['kv_tokens']:,} tokens"] if facts["kv_tokens"] else []
    served.say(scene.state_dir, made, *lines, "INFO:     Application startup complete.")
    served.tell(scene.state_dir, made, "engine", state=READY, progress=None, reason=None, facts=facts)
    for name in ("weights_gb", "kv_tokens", "max_concurrency"):
        if facts[name] is not None:
            yield _item(f"engine:{name}", Text(name, name), "ok", facts[name])
    yield "就绪。 Ready."
    return DONE


def _fails(scene: Scene, made: Served, reason: Text, words: str) -> Ended:
    served.say(scene.state_dir, made, words)
    served.end(scene.state_dir, made, failed=list(reason))
    return Ended(1, reason)


def facts_of(model: Mapping[str, Any], chosen: Settings, made: Served, scene: Scene) -> dict[str, Any]:
    """What a real engine prints while it loads, reckoned from what is known of the model; None where that is not."""
    parts = max(1, chosen.tensor_parallel_size * chosen.pipeline_parallel_size)
    weights = float(model.get("weight_bytes") or 0) / parts
    free = made.memory_mb * 2**20 - weights
    length = chosen.max_model_len or model.get("max_position") or None
    heads, layers, width = (model.get(name) for name in ("kv_heads", "layers", "head_dim"))
    each = 2 * heads * layers * width * 2 / parts if heads and layers and width else None
    tokens = int(free / each) // 128 * 128 if each and made.chips else None
    return {
        "version": VERSION,
        "weights_gb": round(weights / 1e9, 2) if weights else None,
        "available_kv_gib": round(free / 2**30, 2) if made.chips else None,
        "kv_tokens": tokens,
        "max_model_len": length,
        "max_concurrency": round(tokens / length, 2) if tokens and length else None,
    }


def _try_one(scene: Scene, ask: Ask) -> Act:
    made = served.read(scene.state_dir, ask.replica)
    if made is None or made.state != READY:
        return Ended(1, Text("引擎没有回答。", "The engine did not answer."))
    served.write(scene.state_dir, replace(made, answered=True))
    if ask.is_follower:
        return Ended(NOTHING)
    yield 0.4
    yield _item("answer", Text("一次回答", "One answer"), "ok", "412 ms · 8 tokens")
    name = command.name(settings.read(ask.settings), ask.model)
    yield f"“{name}” 回答了一次。 “{name}” answered once."
    return DONE


def _settle(scene: Scene, ask: Ask) -> Act:
    made = served.read(scene.state_dir, ask.replica)
    yield 0.1
    if made is None or made.answered or not made.runs:
        return Ended(NOTHING)
    served.end(scene.state_dir, made)
    yield "引擎已停止，日志保留。 The engine was stopped; its log stays."
    return DONE


# ---------- stop ----------


def _stop(scene: Scene, ask: Ask, drains: float) -> Act:
    made = served.read(scene.state_dir, ask.replica)
    if made is None or not made.runs:
        yield f"没有引擎 {ask.name}。 There is no engine {ask.name}."
        return Ended(NOTHING)
    cut = 0 if drains else _under_way(made)
    yield min(drains, 8.0) or 1.5
    served.end(scene.state_dir, made)
    yield Told(told="engine_stopped", data={"replica": ask.replica, "cut": cut})
    yield _item("cut", Text("切断的请求", "Requests cut off"), "ok", cut)
    yield f"引擎已停止，切断的请求：{cut}。 The engine has stopped; requests cut off: {cut}."
    return DONE


def _under_way(made: Served) -> int:
    told = served.metrics(made, time.time())
    return int(told["running"] or 0) + int(told["waiting"] or 0)


def _idle(scene: Scene, ask: Ask, fault: str) -> Act:
    if not ask.npus:
        return Ended(NOTHING)
    yield 2.0
    most = (by_chip(scene.server.spec.chip) or scene.server.spec.idle_mb) + MARGIN_MB
    for n, name in enumerate(ask.npus):
        title, wanted = Text(f"NPU 显存 {name}", f"Memory of the NPU {name}"), f"≤ {most} MB"
        if fault == "memory_stays" and n == 0:
            job = {"kind": "reset", "params": {"npu": name.partition("/")[0]}}
            yield Item(key=f"idle:{name}", title=list(title), verdict="failed", found="21904 MB", wanted=wanted,
                       remedy=["复位这个 NPU。", "Reset this NPU."], job=job)  # fmt: skip
        else:
            yield _item(f"idle:{name}", title, "ok", f"{scene.server.spec.idle_mb} MB")
    if fault == "memory_stays":
        return Ended(
            1,
            Text(
                f"引擎已停止，但 NPU 的显存没有释放：{ask.npus[0]} 21904 MB。请复位它，再使用。",
                f"The engine was stopped, but an NPU does not give its memory back: {ask.npus[0]} 21904 MB. Reset it "
                "before it is used again.",
            ),
        )
    return DONE


def _item(key: str, title: Text, verdict: str, found: object) -> Item:
    return Item(
        key=key, title=list(title), verdict=verdict, found=str(found), wanted=None, remedy=None, job=None
    )  # fmt: skip
