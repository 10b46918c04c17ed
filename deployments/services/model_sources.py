"""Where this site's models come from: its hubs, whom to trust for them, and the tokens that they ask for.

A token leaves the settings in one way alone: sealed for a server whose job asks for it, or in a file of the agent on
this machine. Everything else here masks it.
"""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from console.errors import Invalid, NotAllowed
from deployments.agent import signing
from deployments.agent.models import signed_http
from deployments.models import Attempt, Server
from deployments.models.job import ENDED

MASK = "•••"
KINDS = ("download", "download_look", "model_copy", "model_serve")


def hubs() -> dict[str, str]:
    """Source -> address of the hub, as a job goes there."""
    return {"huggingface": settings.MODEL_HUB, "modelscope": settings.MODELSCOPE_HUB}


def authorities() -> str:
    """PEM, '' where the settings name none. Raises Invalid where the file is gone since the start."""
    path = settings.MODEL_HUB_CA
    try:
        return Path(path).read_text() if path else ""
    except (OSError, ValueError) as error:
        raise Invalid(
            _("The authority of the model hubs, %(path)s, cannot be read.") % {"path": path},
            _("Put the file that MODEL_HUB_CA names back, then try again."),
            code="no_hub_ca",
        ) from error


def tokens_for(address: str) -> dict[str, str]:
    """Those that may go to this address: of its host by https, or of its very origin where that was named so."""
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}".lower()
    host = (parts.hostname or "").lower()
    return {
        where: token
        for where, token in settings.MODEL_TOKENS
        if where == origin or (where == host and parts.scheme == "https")
    }


def is_private(address: str) -> bool:
    """Whether a job needs what only we know to get there."""
    return bool(tokens_for(address) or (settings.MODEL_HUB_CA and address.startswith("https://")))


def _copy_seed() -> str:
    """What the keys of all copies are made of; it leaves the console for the agent on this machine alone. Hex."""
    return hmac.new(settings.SECRET_KEY.encode(), b"copies of models", hashlib.sha256).hexdigest()


def own_file() -> str:
    """For the agent of this machine, whose folder nobody else may enter."""
    return json.dumps({"tokens": dict(settings.MODEL_TOKENS), "ca": authorities(), "seed": _copy_seed()})


def for_attempt(server: Server, attempt: str) -> bytes:
    """Sealed for this server, while it works on that attempt. Raises NotAllowed."""
    rows = Attempt.objects.filter(pk=attempt[:40], job__server=server, job__kind__in=KINDS, pushed_at__isnull=False)
    row = rows.exclude(state__in=ENDED).exclude(job__state__in=ENDED).select_related("job").first()
    if row is None:
        raise NotAllowed(
            _("No job that asks for models runs on this server under that name."),
            _("Queue the download anew."),
            code="no_such_attempt",
        )
    return signing.seal(server.key, json.dumps(_content(row.job.params)).encode())


def _content(params: dict[str, Any]) -> dict[str, Any]:
    """Only what this very job needs."""
    if pair := params.get("pair"):
        return {"tokens": {}, "ca": "", "key": signed_http.key_of(_copy_seed(), str(pair))}
    address = str(params.get("endpoint") or params.get("model") or "")
    return {"tokens": tokens_for(address), "ca": authorities()}


def as_json() -> dict[str, Any]:
    """For pages and REST, with every token masked; null is what is not set."""
    return {
        **hubs(),
        "ca": settings.MODEL_HUB_CA or None,
        "tokens": [{"for": where, "token": MASK} for where, _token in settings.MODEL_TOKENS],
    }
