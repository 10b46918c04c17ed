"""Look what quantizing would take on this server: recipe, memory, disk, calibration set. It changes nothing."""

from deployments.kinds import quantize
from deployments.steps import Step, Text

TITLE = Text("查看量化会用什么", "Look what quantizing would take")
OWN_PAGE = True
ACTED = True
FILLED = quantize.FILLED
Params = quantize.Params


def locks(p: quantize.Params) -> list[str]:
    """Nothing: it only reads."""
    return []


def steps(p: quantize.Params) -> list[Step]:
    title = Text("查看配方、内存、磁盘与校准集", "Look at recipe, memory, disk and calibration set")
    return [Step(title, quantize.step(p, "look"), timeout_s=quantize.LOOK_S)]


def undo(p: quantize.Params) -> list[Step]:
    """Nothing: it only reads."""
    return []
