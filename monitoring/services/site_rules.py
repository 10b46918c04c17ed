"""Rules of the site beside ours: one TOML file, read anew when it has changed, tried on past logs before it is saved.

The format is that of `monitoring/diagnoses/*.toml`. A rule with the id of one of ours takes its place, `off = ["id"]`
at the top takes ours away. Where the file cannot be used, the last good rules of this process go on, and the page says
why.
"""

import dataclasses
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid, NotAllowed, Unavailable
from console.models import User
from deployments import locks
from deployments.services.site_file import SiteFile
from monitoring import diagnoses
from monitoring.diagnoses import hostile
from monitoring.diagnoses.rules import BadRule, Rule, read, read_off
from monitoring.services import site_rule_words

log = logging.getLogger(__name__)

STAGE = "runtime"  # of a rule that names none
MOST_BYTES = 256 * 1024
MOST_RULES = 500
EXAMPLE = """# off = ["port-in-use"]

[[rule]]
id = "our-licence-server"
stage = "serve"
weight = 85
says = ["licence server {w:host} did not answer"]
cause = { zh = "许可证服务器 {host} 没有回答。", en = "The licence server {host} did not answer." }
remedies = [
  { zh = "联系中间件组，内线 4711。", en = "Call the middleware team, extension 4711." },
  { zh = "然后检查这台服务器。", en = "Then check the server.", job = "check" },
]
"""


@dataclass(frozen=True)
class Site:
    """What stands in the file. `problem`: why it is not used, '' where it is."""

    text: str = ""
    rules: tuple[Rule, ...] = ()
    off: frozenset[str] = frozenset()
    problem: str = ""

    @property
    def digest(self) -> str:
        return digest(self.text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def parsed(text: str) -> Site:
    """Raises BadRule."""
    found = read(text, STAGE)
    if len(found) > MOST_RULES:
        raise BadRule(f"{len(found)} rules; at most {MOST_RULES} can be held against each log")
    # What a site looks for may stand in lines of INFO: where its rules fit, they count.
    return Site(text, tuple(dataclasses.replace(rule, calm=True) for rule in found), read_off(text))


def _read(path: Path) -> Site:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Site()
    except OSError as error:
        return Site(problem=str(error))
    text = data[:MOST_BYTES].decode("utf-8", "replace")
    try:
        if len(data) > MOST_BYTES:
            raise BadRule(f"longer than {MOST_BYTES // 1024} kB")
        return parsed(text)
    except BadRule as error:
        log.warning("%s is not used: %s", path, error)
        return Site(text, problem=str(error))


_file = SiteFile(_read)
_good: dict[Path, Site] = {}


def site() -> Site:
    return _file.content(settings.SITE_DIAGNOSES)


def signatures() -> diagnoses.Signatures:
    """Ours and the site's, prepared."""
    now, path = site(), settings.SITE_DIAGNOSES
    if not now.problem:
        _good[path] = now
    return _prepared(_good.get(path, Site()))


@lru_cache(maxsize=2)
def _prepared(own: Site) -> diagnoses.Signatures:
    if not own.rules and not own.off:
        return diagnoses.signatures()
    return diagnoses.Signatures(every(own))


def every(own: Site) -> list[Rule]:
    """Ours, without those that the site has its own of or does not want, and the site's."""
    gone = own.off | {rule.id for rule in own.rules}
    return [*(rule for rule in diagnoses.bundled() if rule.id not in gone), *own.rules]


def check(text: str) -> Site:
    """What may be saved. Raises Invalid with what is wrong in it."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise Invalid(
            _("The rules are longer than %(n)s kB.") % {"n": MOST_BYTES // 1024},
            _("Leave some of them out."),
        )
    text = text.replace("\r\n", "\n")
    try:
        found = parsed(text)
        strange = sorted(found.off - {rule.id for rule in diagnoses.bundled()})
        if strange:
            raise BadRule(f"off: there is no rule {', '.join(strange)[:200]}")
    except BadRule as error:
        why = site_rule_words.told(str(error), STAGE)
        raise Invalid(_("The rules cannot be used: %(why)s.") % {"why": why}, _("Mend it and try again.")) from None
    slow = hostile.slow(text, STAGE) if found.rules else []
    if slow:
        raise Invalid(
            _("“%(what)s” takes too long for a line that nearly fits.") % {"what": slow[0][:200]},
            _("Name more of the line, and leave out some of its {*}: logs of all servers wait for it."),
            code="too_slow",
        )
    return found


def save(text: str, *, by: User, over: str) -> Site:
    """Replace the file. `over`: `Site.digest` of what was read. Raises Invalid, NotAllowed, Conflict."""
    if not by.may("administrator"):
        raise NotAllowed(_("Rules of the site are for administrators."), _("Ask one to save them."))
    found = check(text)
    path = settings.SITE_DIAGNOSES
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path):
            if site().digest != over:
                raise _changed()
            _replace(path, found.text)
    except OSError as error:
        raise Unavailable(
            _("%(path)s could not be written: %(why)s.") % {"path": path, "why": error.strerror or error},
            _("Make room or mend its permissions; the rules before still stand."),
        ) from error
    audit.record(by, "diagnoses.site_saved", by, rules=[rule.id for rule in found.rules], off=sorted(found.off))
    return site()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    descriptor = locks.take_lock(path.with_name(f"{path.name}.lock"), 5.0)
    if descriptor is None:
        raise _changed()
    try:
        yield
    finally:
        os.close(descriptor)


def _changed() -> Conflict:
    return Conflict(
        _("Somebody else has changed the rules meanwhile."),
        _("Open the page anew, and put your rules in again."),
        code="changed_meanwhile",
    )


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.new")
    with aside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
