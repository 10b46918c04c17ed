""" "Now" dicts for tests, in the shape of monitoring/services/live_state.py."""


def npu(
    index=0, *, npu_id=None, chip=0, occ="free", health="OK", aicore=0, used=3200, total=65536, temp=40, power=92.5
):
    where = {"npu": index if npu_id is None else npu_id, "chip": chip, "bus_id": f"0000:{0x81 + index:02X}:00.0"}
    memory = {"hbm_used_mb": used, "hbm_total_mb": total}
    present = {"aicore": aicore, "temp_c": temp, "power_w": power, "health": health, "occ": occ}
    return {**where, "name": "910B3", **memory, **present}


def process(npu_id=0, chip=0, *, pid=4711, name="python3", user="wang", mb=20000, attempt=None):
    who = {"pid": pid, "name": name, "user": user, "command": name, "attempt": attempt}
    return {"npu": npu_id, "chip": chip, "memory_mb": mb, **who}


def now(pk=1, name="kp-01", *, state="live", seen=1000.0, simulated=False, rack="A1", npus=(), processes=(), **more):
    return {
        "id": pk, "name": name, "simulated": simulated, "rack": rack, "state": state, "seen": seen,
        "site": "", "labels": "", "display": "", "mark": "",
        "family": "910B3" if npus else "", "seq": 7, "took_ms": 40.0, "error": more.get("error"), "npus": list(npus),
        "processes": list(processes), "host": more.get("host") or {}, "version": "25.5.1", "holders": {},
    }  # fmt: skip
