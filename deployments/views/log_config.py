"""What a page tells the log viewer of static/js/log/ about the services of its log."""

from django.urls import Resolver404, resolve

# What static/js/log/remote.js calls it, and the last part of its address.
SERVICES = {"find": "find", "filtered": "filtered", "firstError": "first-error", "facets": "facets", "zip": "zip"}


def services(base: str) -> dict[str, str]:
    """Addresses of the services that know the whole log, those that there are; `base` ends with a slash: "/jobs/42/".

    Without one the viewer does with the lines that it has loaded, and says so.
    """
    return {name: base + last for name, last in SERVICES.items() if _is_served(base + last)}


def _is_served(path: str) -> bool:
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
