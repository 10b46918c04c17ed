"""Words of the fleet and server pages: states, occupancies, choices, and what their scripts say."""

from django.utils.translation import gettext, gettext_lazy, gettext_noop, pgettext_lazy

from console.templatetags.frame import seconds_in_words
from deployments.looks import Look
from monitoring.services.live_state import HEARD

# "live" of a server and "live" of the page's connection are two words in Chinese.
STATES = {
    "live": Look("state-ok", "ok", pgettext_lazy("server", "live")),
    "silent": Look("state-stale", "stale", pgettext_lazy("server", "silent")),
    "offline": Look("state-failed", "critical", pgettext_lazy("server", "offline")),
    "never": Look("state-unknown", "stale", pgettext_lazy("server", "never heard")),
    "maintenance": Look("state-maintenance", "info", pgettext_lazy("server", "maintenance")),
}
FAULTY = Look("state-critical", "critical", gettext_lazy("faulty"))
UNREADABLE = Look("state-warning", "warning", gettext_lazy("unreadable"))

OCCUPANCIES = {
    "free": gettext_noop("free"),
    "ours": gettext_noop("ours"),
    "foreign": gettext_noop("foreign"),
    "unexplained": gettext_noop("unexplained"),
    "held": gettext_noop("on hold"),
    "cordoned": gettext_noop("cordoned"),
    "unreadable": gettext_noop("unreadable"),
    "faulty": gettext_noop("faulty"),
}

PLOTS = [
    gettext_noop("AI Core %"), gettext_noop("HBM GB"), gettext_noop("Temperature °C"), gettext_noop("Power W"),
    gettext_noop("Engines, tokens/s"), gettext_noop("Jobs"), gettext_noop("Replicas"), gettext_noop("Alerts"),
    gettext_noop("one point a minute"), gettext_noop("one point each %(span)s"),
    gettext_noop("The plots could not be loaded. They are tried again in a minute."), gettext_noop("Time"),
    gettext_noop("until now"), gettext_noop("%(n)s s"), gettext_noop("%(n)s min"), gettext_noop("%(n)s h"),
    gettext_noop("%(n)s d"),
]  # fmt: skip

METRICS = {
    "aicore_pct": gettext_noop("AI Core %"),
    "hbm_pct": gettext_noop("HBM %"),
    "temp_c": gettext_noop("Temperature °C"),
    "power_w": gettext_noop("Power W"),
}
GROUPS = {
    "rack": gettext_noop("rack"),
    "site": gettext_noop("site"),
    "family": gettext_noop("family"),
    "none": gettext_noop("none"),
}
SORTS = {"name": gettext_noop("name"), "worst": gettext_noop("worst first")}

# Keys of static/js/fleet/*.js and topics/fleet.js.
FLEET = [
    *OCCUPANCIES.values(),
    gettext_noop("%(state)s for %(span)s"),
    gettext_noop("Rack %(name)s"),
    gettext_noop("no rack"),
    gettext_noop("Site %(name)s"),
    gettext_noop("no site"),
    gettext_noop("Edit %(n)s servers"),
    gettext_noop("no NPU"),
    gettext_noop("simulated"),
    gettext_noop("Servers"),
    gettext_noop("Simulated servers"),
    gettext_noop("servers %(servers)s · NPUs free %(free)s of %(npus)s"),
    gettext_noop("%(name)s · NPU %(n)s"),
    gettext_noop("last value %(span)s ago"),
    gettext_noop("Temperature"),
    gettext_noop("Power"),
    gettext_noop("Occupancy"),
    gettext_noop("Health"),
    gettext_noop("Holder"),
    gettext_noop("Kept for"),
    gettext_noop("%(shown)s of %(all)s servers shown"),
    gettext_noop("The filters did not reach the console; the page shows what it already has."),
    gettext_noop("NPUs of %(name)s: arrow keys read each, Enter opens the server"),
]

# Keys of static/js/topics/server.js.
SERVER = [
    *OCCUPANCIES.values(),
    gettext_noop("%(state)s for %(span)s"),
    gettext_noop("no process"),
    gettext_noop("ours"),
    gettext_noop("job #%(id)s"),
    gettext_noop("foreign process"),
    gettext_noop("free"),
    gettext_noop("replica %(n)s of %(name)s"),
]


def choices() -> dict[str, list[tuple[str, str]]]:
    """{name of a select: [(value, label)]} in the reader's language."""
    lists = {"metric": METRICS, "group": GROUPS, "sort": SORTS}
    return {name: [(value, gettext(key)) for value, key in words.items()] for name, words in lists.items()}


LATE_S = 5  # a reading is due every second; older than this it is greyed


def age_of(state: str, age_s: float | None) -> str:
    """How old a server's last reading is; with the state's name where it is not heard any more."""
    if state in HEARD:
        return seconds_in_words(age_s)
    word = str(STATES[state].word)
    return (
        word if age_s is None else gettext("%(state)s for %(span)s") % {"state": word, "span": seconds_in_words(age_s)}
    )


def look_of(state: str, *, faulty: bool, error: bool) -> Look:
    """What a server looks like in a list: where it is heard, a faulty NPU or a failed reading goes before its state."""
    if state in HEARD:
        if faulty:
            return FAULTY
        if error:
            return UNREADABLE
    return STATES[state]
