"""What only simulated servers have where stacks are installed: restarts of their own, and faults that are asked for."""

import dataclasses
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from deployments.models import Server
from deployments.stacks import faults
from deployments.stacks.draft import as_step
from deployments.stacks.plan import Plan
from deployments.steps import ATTEMPT, Text

BACK_WITHIN_S = 180.0  # a simulated server takes half a minute
RESTART = ("reboot", ATTEMPT)
RESTARTS = Text(
    "模拟服务器自己重启，约半分钟没有消息，然后以新的 boot id 回来。",
    "A simulated server restarts by itself: nothing is heard of it for half a minute, then it is back with another "
    "boot id.",
)


def restarting(made: Plan) -> Plan:
    """The plan for a simulated server: there nobody can press a button, so it restarts by its simulated root helper."""
    steps = [
        dataclasses.replace(
            step, argv=("root-helper", *RESTART), action=RESTART, needs_root=True, reboot_s=BACK_WITHIN_S, note=RESTARTS
        )
        if step.reboot and not step.argv
        else step
        for step in made.steps
    ]
    return dataclasses.replace(made, steps=tuple(steps))


def possible(made: Plan) -> list[tuple[str, Text]]:
    """[(name, title)] of the faults for which the plan gives occasion."""
    return [(name, faults.FAULTS[name].title) for name in faults.possible([as_step(step) for step in made.steps])]


def check(server: Server, made: Plan, params: dict[str, Any]) -> None:
    """Raises Invalid for a fault on a real server, Conflict for one that this plan gives no occasion for."""
    fault = str(params.get("fault") or "")
    if not fault:
        return
    if not server.simulated:
        raise Invalid(
            _("%(server)s is a real server: faults are simulated on simulated ones alone.") % {"server": server.name},
            _("Leave “fault” out, or choose a simulated server."),
            code="fault_on_real",
        )
    names = [name for name, _title in possible(made)]
    if fault not in names:
        raise Conflict(
            _("The plan has no step at which the fault “%(fault)s” could come about.") % {"fault": fault},
            _("Choose one of these: %(names)s.") % {"names": ", ".join(names) or "—"},
            code="no_occasion",
        )
