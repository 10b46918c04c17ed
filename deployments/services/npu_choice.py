"""Which NPU a job takes that needs any one of its server."""

from deployments.models import Npu, Server
from deployments.services import in_use, reserved, waiting


def names_of_one(server: Server) -> list[str]:
    """The names by which a job holds one NPU: its bus id, and its chip's. The first that is neither cordoned nor
    promised to somebody, that no job holds or waits for, and without a process as far as is known; [] where no NPU is
    known, or none may be had. Rows of lost cards stay: those of the newest reading have its time."""
    held = {lock for job in waiting.on_servers([server.pk]).get(server.pk, []) for lock in job.locks}
    used = {(one.get("npu"), one.get("chip") or 0) for one in in_use.processes(server) or []}

    def in_the_way(npu: Npu) -> tuple[bool, bool, int]:
        locks = {f"{waiting.NPU_LOCK}{name}" for name in _names(npu)}
        return bool(locks & held), (npu.npu_id, npu.chip_id or 0) in used, npu.device_index

    rows = list(server.npus.exclude(bus_id=None))
    newest = max((npu.seen_at for npu in rows), default=None)
    kept = reserved.of(server)
    free = [npu for npu in rows if npu.seen_at == newest and f"{npu.bus_id}".upper() not in server.cordons]
    free = [npu for npu in free if not any(reserved.covers(name, f"{npu.bus_id}") for name in kept)]
    return _names(min(free, key=in_the_way)) if free else []


def _names(npu: Npu) -> list[str]:
    return [f"{npu.bus_id}", f"{npu.bus_id}/{npu.chip_id}"]
