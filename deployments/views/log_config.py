"""What a page tells the log viewer of static/js/log/ about the services of its log."""


def services(base: str) -> dict[str, str]:
    """Addresses of the services that know the whole log; `base` ends with a slash, as in "/jobs/42/"."""
    return {
        "find": f"{base}find",
        "filtered": f"{base}filtered",
        "firstError": f"{base}first-error",
        "facets": f"{base}facets",
    }
