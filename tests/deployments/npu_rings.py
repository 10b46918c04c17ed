"""Servers whose NPUs belong together: cards, and rings of HCCS."""

from django.utils import timezone

from deployments.models import Npu, Server

# Four NPUs, of which two and two are in a ring.
PAIRS = {"links": {f"NPU{a}": {f"NPU{b}": "HCCS" if a // 2 == b // 2 else "SYS" for b in range(4) if b != a}
                   for a in range(4)}}  # fmt: skip


def server_with(topology, chips=1, ids=range(4), **more):
    facts = {"root": "helper", "topology": topology}
    made = Server.objects.create(name="kp-1", facts=facts, last_seen_at=timezone.now(), **more)
    places = [(npu, chip) for npu in ids for chip in range(chips)]
    for index, (npu, chip) in enumerate(places):
        Npu.objects.create(
            server=made, device_index=index, npu_id=npu, chip_id=chip, bus_id=f"0000:{index + 16:02X}:00.0"
        )
    return made
