"""Talk to a deployment in the browser: what may be asked, of which replica, and the stream of its answer.

Nothing of it is kept: no row, no log line, no audit entry, no cache. The console passes words on.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError, Invalid, NotAllowed
from console.models import User
from deployments.models import Deployment, Replica, ReplicaState
from deployments.services import benchmarks, engine_stream
from deployments.services.engine_stream import Engine

MOST_MESSAGES, MOST_CHARACTERS, MOST_STOPS = 200, 200_000, 4
MOST_BODY = 1 << 20
MOST_TOKENS = 131_072
MOST_LINE = 256 * 1024  # of the stream
WHOLE_S = 1800.0
EACH, ALL = 4, 64  # streams at once: of one user, of this process
ROLES = ("system", "user", "assistant")
FIELDS = ("messages", "temperature", "max_tokens", "top_p", "seed", "stop")

_open: Counter[int] = Counter()


@dataclass(frozen=True)
class Target:
    """One replica that can be asked."""

    replica: Replica
    engine: Engine
    model: str


def check_may_use(user: User) -> None:
    """Operators and up; viewers where the site allows it. Raises NotAllowed."""
    if user.may("operator") or (settings.PLAYGROUND_VIEWERS and user.may("viewer")):
        return
    raise NotAllowed(
        _("Your role may not ask deployments anything here."),
        _("Ask an operator, or an administrator to set PLAYGROUND_VIEWERS."),
        code="no_playground",
    )


def targets(deployment: Deployment) -> list[Replica]:
    """Replicas that are ready, of real servers: a simulated engine has nothing to say."""
    rows = deployment.replica_set.filter(state=ReplicaState.READY, server__simulated=False)
    return list(rows.exclude(port=0).select_related("server", "revision", "deployment").order_by("n"))


def choose(deployment: Deployment, n: int | None) -> Target:
    """That replica, or the one with the least to do. Raises Conflict where none is ready."""
    there = [one for one in targets(deployment) if n in (None, one.n)]
    if not there:
        raise Conflict(
            _("%(name)s has no ready replica that could answer.") % {"name": deployment.name}
            if n is None
            else _("Replica %(n)s of %(name)s is not ready.") % {"n": n, "name": deployment.name},
            _("Wait until one is ready, then ask again."),
            code="not_ready",
        )
    chosen = min(there, key=lambda one: (benchmarks.load_of(one) or 0, one.n))
    return Target(
        chosen, Engine(chosen.address, chosen.port, chosen.deployment.api_key), benchmarks.served_name(chosen)
    )


def offered(but: Deployment) -> list[Deployment]:
    """Others that can stand beside it."""
    rows = Deployment.objects.present().exclude(pk=but.pk)
    ready = rows.filter(replica_set__state=ReplicaState.READY, replica_set__server__simulated=False)
    return list(ready.distinct().order_by("name")[:200])


# ---------- what is asked ----------


def check(given: Any) -> dict[str, Any]:
    """The body for an engine, without its model. Raises Invalid, which repeats nothing of what was typed."""
    if not isinstance(given, dict) or any(name not in (*FIELDS, "replica") for name in given):
        raise _invalid(_("fields"))
    made: dict[str, Any] = {"messages": _messages(given.get("messages"))}
    numbers = {"temperature": (0, 2), "top_p": (0.0001, 1)}
    for name, (least, most) in numbers.items():
        if (value := given.get(name)) is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
                raise _invalid(name)
            made[name] = value
    for name, most in (("max_tokens", MOST_TOKENS), ("seed", 2**63 - 1)):
        if (value := given.get(name)) is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not (name == "max_tokens") <= value <= most:
                raise _invalid(name)
            made[name] = value
    if stops := given.get("stop"):
        if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(_is_text(one, 200) for one in stops):
            raise _invalid("stop")
        made["stop"] = stops
    return {**made, "stream": True, "stream_options": {"include_usage": True}}


def _messages(value: Any) -> list[dict[str, str]]:
    rows = value if isinstance(value, list) else []
    if not rows or len(rows) > MOST_MESSAGES:
        raise _invalid("messages")
    made = []
    for row in rows:
        role, content = (row.get("role"), row.get("content")) if isinstance(row, dict) else (None, None)
        if role not in ROLES or not isinstance(content, str):
            raise _invalid("messages")
        made.append({"role": role, "content": content})
    if sum(len(one["content"]) for one in made) > MOST_CHARACTERS:
        raise Invalid(
            _("The messages are longer than %(n)s characters together.") % {"n": MOST_CHARACTERS},
            _("Begin a new conversation, or ask for less."),
            code="too_long",
        )
    return made


def _is_text(value: Any, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most


def _invalid(name: str) -> Invalid:
    return Invalid(
        _("“%(name)s” of the request does not fit.") % {"name": name},
        _("Correct it and send again."),
        code="invalid_chat",
    )


# ---------- the stream ----------


async def answer(target: Target, asked: Mapping[str, Any], user_pk: int) -> AsyncIterator[bytes]:
    """The engine's events as they come; what goes wrong is one event `error` in words, in the asker's language."""
    language = translation.get_language() or "en"
    if _open[user_pk] >= EACH or _open.total() >= ALL:
        yield _event(_busy(), language)
        return
    _open[user_pk] += 1
    try:
        async with asyncio.timeout(WHOLE_S):
            body = json.dumps({**asked, "model": target.model}).encode()
            async for lines in _whole_lines(engine_stream.post(target.engine, "/v1/chat/completions", body)):
                yield lines
    except TimeoutError:
        yield _event(_too_long, language)
    except engine_stream.Away:
        yield _event(_away, language)
    except engine_stream.Silent:
        yield _event(_silent, language)
    except engine_stream.TooMuch:
        yield _event(_too_much, language)
    except engine_stream.Refused as error:
        refusal = error
        yield _event(lambda: _refused(refusal), language)
    finally:
        _open[user_pk] -= 1
        if not _open[user_pk]:
            del _open[user_pk]


async def _whole_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What has come up to the last line end: an error of ours never lands within a line of the engine's."""
    rest = b""
    async for piece in pieces:
        whole, end, rest = (rest + piece).rpartition(b"\n")
        if whole or end:
            yield whole + end
        if len(rest) > MOST_LINE:
            raise engine_stream.TooMuch
    if rest:
        yield rest + b"\n"


def _event(error: Any, language: str) -> bytes:
    with translation.override(language):
        made: ConsoleError = error() if callable(error) else error
        data = json.dumps({"what": made.what, "do": made.do, "code": made.code}, ensure_ascii=False)
    return f"\nevent: error\ndata: {data}\n\n".encode()


def _busy() -> ConsoleError:
    return Conflict(
        _("Too many answers are under way at once."), _("Wait until one of them has ended."), code="too_many"
    )


def _away() -> ConsoleError:
    return Conflict(
        _("The engine is not reached, or hung up in the middle."),
        _("Look at its replica: it may be starting anew. Then ask again."),
        code="engine_away",
    )


def _silent() -> ConsoleError:
    return Conflict(
        _("The engine said nothing for %(n)s s.") % {"n": round(engine_stream.SILENT_S)},
        _("Look at its queue and its log, then ask again."),
        code="engine_silent",
    )


def _too_long() -> ConsoleError:
    return Conflict(
        _("The answer took longer than %(n)s min and was ended.") % {"n": round(WHOLE_S / 60)},
        _("Ask for fewer tokens."),
        code="took_too_long",
    )


def _too_much() -> ConsoleError:
    return Conflict(
        _("The answer is longer than is passed on here, and was ended."), _("Ask for fewer tokens."), code="too_much"
    )


def _refused(error: engine_stream.Refused) -> ConsoleError:
    words = _own_words(error.words)
    if error.status in (401, 403):
        return Conflict(
            _("The engine does not take the key of its deployment (HTTP %(status)s).") % {"status": error.status},
            _("Restart the replica: it was started with another key."),
            code="wrong_key",
        )
    return Invalid(
        _("The engine refuses it (HTTP %(status)s): %(words)s") % {"status": error.status, "words": words},
        _("Change what it names, such as max_tokens or the length of the conversation, and send again."),
        code="engine_refused",
    )


def _own_words(text: str) -> str:
    try:
        found = json.loads(text)
        error = found.get("error", found)
        if isinstance(error, str):
            return " ".join(error[:300].split()) or "—"
        return " ".join(str(error.get("message", ""))[:300].split()) or "—"
    except (ValueError, AttributeError):
        return " ".join(text[:300].split()) or "—"


def log_warning(data: Mapping[str, Any]) -> str:
    """The sentence beside a setting by which an engine writes down what people ask; '' where it does not."""
    if not data.get("log_requests"):
        return ""
    return _(
        "With “log requests” the engine writes what people ask, and who reads its log reads that. It is meant for "
        "looking at a fault: switch it off again afterwards."
    )
