"""Job kinds. The folder is the list: a module with TITLE and Params is a kind."""

import importlib
import pkgutil
from functools import lru_cache
from types import ModuleType


@lru_cache(maxsize=1)
def names() -> list[str]:
    """Every kind, sorted. Modules whose name holds an underscore-suffix helper (`check_probes`) have no TITLE and are none."""
    found = (info.name for info in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if hasattr(_module(name), "TITLE"))


def load(name: str) -> ModuleType:
    """The kind's module. Raises KeyError for a name that is no kind; never imports anything else."""
    if name not in names():
        raise KeyError(name)
    return _module(name)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
