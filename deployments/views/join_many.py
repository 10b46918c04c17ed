"""Pages for many servers that join by SSH: the list, its host keys and credentials, and how it goes. Administrators."""

import hashlib
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console import spreadsheet
from console.errors import ConsoleError, Invalid, NotFound
from console.middleware import wants_json
from deployments import join_many_texts
from deployments.models import JoinMany, JoinRow
from deployments.models.join_many import MOVING, RETRIABLE, Phase, RowState
from deployments.services import host_list, join, join_many, join_process, ssh
from deployments.views.lookup import is_part, refusal_said, user_of

SHOWN = 10
MOST_UPLOAD = 1_000_000
MOST_KEY = 20_000
SECRETS = ("password", "private_key", "passphrase", "sudo_password")


# ---------- the list ----------


@require_http_methods(["GET", "POST"])
def many_new(request: HttpRequest) -> HttpResponse:
    """GET: an empty list. POST: the list with what is wrong in each line, or, where that was seen, its beginning."""
    join.check_may_administer(user_of(request))
    given = {"text": "", "user": "root", "prefix": "", "at_once": str(join_many.AT_ONCE)}
    refusal: ConsoleError | None = None
    lines: list[host_list.Line] = []
    try:
        join.check_reach()
        if request.method == "POST":
            given |= {name: request.POST.get(name, "")[: host_list.MOST_CHARACTERS + 1] for name in given}
            given["text"] = _text(request, given["text"])
            lines = host_list.read(given["text"], user=given["user"], prefix=given["prefix"])
            good = [line for line in lines if not line.problems]
            if request.POST.get("act") == "start" and request.POST.get("seen") == _digest(given) and good:
                return redirect("deployments:join-many-detail", pk=_start(request, good, given["at_once"]).pk)
    except ConsoleError as error:
        refusal = error
    context = {
        "given": given,
        "refusal": refusal,
        "lines": lines,
        "good": sum(not line.problems for line in lines),
        "bad": sum(bool(line.problems) for line in lines),
        "seen": _digest(given),
        "recent": [(one, _counts(one)) for one in JoinMany.objects.select_related("made_by")[:SHOWN]],
        "local_only": join.is_local_only(),
    }
    return render(request, "deployments/join_many_new.html", context, status=_status(request, refusal))


def _status(request: HttpRequest, refusal: ConsoleError | None) -> int:
    return refusal.status if refusal and request.method == "POST" else 200


def _text(request: HttpRequest, pasted: str) -> str:
    """The list that was chosen as a file, else the one that was pasted. Raises Invalid."""
    file = request.FILES.get("file")
    if file is None:
        return pasted
    if (file.size or 0) > MOST_UPLOAD:
        raise Invalid(_("The list is longer than 500 kB."), _("Divide it into several lists."), code="too_long")
    return host_list.decode(file.read())


def _digest(given: dict[str, str]) -> str:
    """Of what the preview was made of: nothing else may start."""
    seen = "\0".join(given[name] for name in ("text", "user", "prefix"))
    return hashlib.sha256(seen.replace("\r\n", "\n").encode("utf-8", "replace")).hexdigest()[:32]


def _start(request: HttpRequest, lines: list[host_list.Line], at_once: str) -> JoinMany:
    many = join_many.create(lines, at_once=_at_once(at_once), by=user_of(request))
    join_process.start(many)
    return many


def _at_once(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0


@require_GET
def many_template(request: HttpRequest) -> HttpResponseBase:
    """The list as a spreadsheet to fill in."""
    join.check_may_administer(user_of(request))
    return spreadsheet.answer("ascend-console-servers.csv", host_list.TEMPLATE[0], host_list.TEMPLATE[1:])


# ---------- how it goes ----------


@require_GET
def many_detail(request: HttpRequest, pk: int) -> HttpResponse:
    join.check_may_administer(user_of(request))
    return _page(request, join_many.settle(_many(pk)))


def _page(request: HttpRequest, many: JoinMany, refusal: ConsoleError | None = None) -> HttpResponse:
    rows = list(many.rows.select_related("server").defer("log") if many.phase != Phase.JOINING
                else many.rows.select_related("server"))  # fmt: skip
    context: dict[str, Any] = {
        "many": many,
        "rows": [_shown(row, many) for row in rows],
        "counts": _counts(many),
        "total": len(rows),
        "keyed": sum(row.state == RowState.KEYED for row in rows),
        "retriable": 0 if many.is_under_way else sum(row.state in RETRIABLE for row in rows),
        "refusal": refusal,
        "chosen": request.POST.getlist("row"),
    }
    if wants_json(request):
        return JsonResponse({"html": render_to_string("deployments/_join_many_live.html", context, request)})
    template = "_join_many_live" if is_part(request) else "join_many_detail"
    return render(request, f"deployments/{template}.html", context, status=refusal.status if refusal else 200)


def _shown(row: JoinRow, many: JoinMany) -> dict[str, Any]:
    look, icon = join_many_texts.LOOKS.get(RowState(row.state), ("stale", "state-unknown"))
    speaks = many.phase == Phase.JOINING and row.state == RowState.INSTALLING
    return {
        "row": row,
        "look": look,
        "icon": icon,
        "problem": join_many_texts.problem(row),
        "kind": ssh.kind(row.key) if row.key else "",
        "fingerprint": ssh.fingerprint(row.key),
        "now": row.log.rstrip().rsplit("\n", 1)[-1][-200:] if speaks else "",
    }


def _counts(many: JoinMany) -> list[tuple[str, str, str, int]]:
    """(look, icon, word, how many) of each state that some host is in."""
    states = list(many.rows.order_by().values_list("state", flat=True))
    groups = [
        (_("joined"), (RowState.JOINED,)), (_("failed"), (RowState.FAILED,)), (_("under way"), MOVING),
        (_("answer"), (RowState.KEYED,)), (_("not asked yet"), (RowState.NEW,)),
        (_("left out"), (RowState.CANCELLED, RowState.LEFT_OUT)),
    ]  # fmt: skip
    found = [(word, group, sum(state in group for state in states)) for word, group in groups]
    return [(*join_many_texts.LOOKS[group[-1]], word, n) for word, group, n in found if n]


def _many(pk: int) -> JoinMany:
    found = JoinMany.objects.select_related("made_by").filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise NotFound(_("There is no list #%(id)s.") % {"id": pk}, _("Choose one on the page “Join many servers”."))
    return found


@require_GET
def many_row(request: HttpRequest, pk: int, n: int) -> HttpResponse:
    """One host with what its script said."""
    join.check_may_administer(user_of(request))
    many = join_many.settle(_many(pk))
    row = _row(many, n)
    context = {"many": many, "line": _shown(row, many), "row": row}
    if wants_json(request):
        return JsonResponse({"html": render_to_string("deployments/_join_many_row.html", context, request)})
    return render(request, f"deployments/{'_' if is_part(request) else ''}join_many_row.html", context)


def _row(many: JoinMany, n: int) -> JoinRow:
    row = many.rows.select_related("server", "enrolment").filter(n=n).first() if n < 2**31 else None
    if row is None:
        raise NotFound(_("The list has no line %(n)s.") % {"n": n}, _("Choose a line of the list."))
    return row


# ---------- what changes it ----------


@sensitive_post_parameters(*SECRETS)
@require_POST
def many_confirm(request: HttpRequest, pk: int) -> HttpResponse:
    """The keys of the ticked lines are right, and these are the credentials: they go to the process, nowhere else."""
    join.check_may_administer(user_of(request))
    many = join_many.settle(_many(pk))
    try:
        credentials = _credentials(request)
        chosen = {int(n) for n in request.POST.getlist("row") if n.isascii() and n.isdecimal() and len(n) < 10}
        join_many.confirm(many, chosen, by=user_of(request))
        join_process.start(many, credentials)
    except ConsoleError as error:
        many.refresh_from_db()
        return _page(request, many, error)
    return redirect("deployments:join-many-detail", pk=pk)


def _credentials(request: HttpRequest) -> ssh.Credentials:
    """What the form gave. Raises Invalid in words that name no secret."""
    given = {name: request.POST.get(name, "")[:MOST_KEY] for name in SECRETS}
    file = request.FILES.get("key_file")
    if file is not None and (file.size or 0) > MOST_KEY:
        raise _bad_key("format")
    key = file.read().decode("utf-8", "replace") if file is not None else given["private_key"]
    key = key.replace("\r\n", "\n").strip()
    credentials = ssh.Credentials(
        given["password"], f"{key}\n" if key else "", given["passphrase"], given["sudo_password"]
    )
    if not credentials.password and not credentials.private_key:
        raise Invalid(
            _("Neither a password nor a key was given."),
            _("Give one of them, then start again."),
            code="no_credentials",
        )
    if any("\n" in text for text in (credentials.password, credentials.sudo_password)):
        raise Invalid(_("A password holds a line break."), _("Type it again."), code="bad_password")
    if credentials.private_key:
        try:
            ssh.load_key(credentials.private_key, credentials.passphrase)
        except ssh.BadKey as error:
            raise _bad_key(error.code) from None  # its text may quote what was given
    return credentials


def _bad_key(code: str) -> Invalid:
    if code == "passphrase":
        return Invalid(
            _("The private key does not open with this passphrase."),
            _("Type its passphrase again."),
            code="bad_passphrase",
        )
    return Invalid(
        _("This is no private key that can be read."),
        _("Give the whole file, such as ~/.ssh/id_ed25519, from “-----BEGIN” to “-----END”."),
        code="bad_key",
    )


@require_POST
def many_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda many: join_many.cancel(many, by=user_of(request)))


@require_POST
def many_retry(request: HttpRequest, pk: int) -> HttpResponse:
    def again(many: JoinMany) -> None:
        join_many.retry(many, by=user_of(request))
        join_process.start(many)

    return _changed(request, pk, again)


@require_POST
def many_trust(request: HttpRequest, pk: int, n: int) -> HttpResponse:
    return _changed(request, pk, lambda many: join_many.trust_anew(_row(many, n), by=user_of(request)))


def _changed(request: HttpRequest, pk: int, act: Any) -> HttpResponse:
    join.check_may_administer(user_of(request))
    with refusal_said(request):
        act(join_many.settle(_many(pk)))
    return redirect("deployments:join-many-detail", pk=pk)
