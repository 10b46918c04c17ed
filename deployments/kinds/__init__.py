"""Job kinds. The folder is the list: a module with TITLE and Params is a kind."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any


@lru_cache(maxsize=1)
def names() -> list[str]:
    """Every kind, sorted. A module that helps one (`check_probes`) has no TITLE and is none."""
    found = (info.name for info in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if hasattr(_module(name), "TITLE"))


def offered() -> list[str]:
    """The kinds that a form asks for; those with a page of their own (OWN_PAGE) are queued from there."""
    return [name for name in names() if not getattr(_module(name), "OWN_PAGE", False)]


def load(name: str) -> ModuleType:
    """The kind's module. Raises KeyError for a name that is no kind; imports that one module and no other.

    A runner on a server calls this once at its start, so it does not get slower with every new kind.
    """
    if not any(info.name == name for info in pkgutil.iter_modules(__path__)):
        raise KeyError(name)
    module = _module(name)
    if not hasattr(module, "TITLE"):
        raise KeyError(name)
    return module


def title(name: str) -> Sequence[str]:
    """(zh, en) of a kind; one that is gone keeps its name."""
    try:
        found: Sequence[str] = load(name).TITLE
    except KeyError:
        return name, name
    return found


def that_need_root() -> list[str]:
    """Kinds that are missing where there is no way to root; not those that mostly do without it (MOSTLY_WITHOUT)."""
    found = ((name, _module(name)) for name in names())
    return [
        name
        for name, module in found
        if getattr(module, "NEEDS_ROOT", False) and not getattr(module, "MOSTLY_WITHOUT", False)
    ]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def describe(name: str) -> dict[str, Any]:
    """A kind as the API and forms show it: title and fields with type, label, default and limits."""
    module = load(name)
    return {
        "kind": name,
        "title": list(module.TITLE),
        "needs_root": getattr(module, "NEEDS_ROOT", False),
        "needs_approval": getattr(module, "NEEDS_APPROVAL", False),
        "params": [_field(field) for field in dataclasses.fields(module.Params)],
    }


def _field(field: "dataclasses.Field[Any]") -> dict[str, Any]:
    default, required = field.default, False
    if default is dataclasses.MISSING:
        make = field.default_factory
        required = make is dataclasses.MISSING
        default = make() if make is not dataclasses.MISSING else None
    return {
        "name": field.name,
        "type": field.metadata.get("widget", "text"),
        "label": list(field.metadata.get("label", (field.name, field.name))),
        "required": required,
        "default": default,
        "limits": field.metadata.get("limits", {}),
    }
