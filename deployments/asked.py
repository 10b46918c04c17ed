"""What REST calls share: bodies that allow no unknown field, who asks, and the server that an address names."""

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema
from pydantic import ConfigDict

from console.errors import NotFound
from console.models import User
from deployments.models import Server


class Strict(Schema):
    """A body in which a misspelt field is refused: a misspelt filter must not hit every server."""

    model_config = ConfigDict(extra="forbid")


def user_of(request: HttpRequest) -> User:
    return request.user  # type: ignore[return-value]  # Bearer sets it


def find_server(name: str) -> Server:
    """The server of that name. Raises NotFound."""
    server = Server.objects.filter(name=name[:63]).first()
    if server is None:
        raise NotFound(
            _("There is no server “%(name)s”.") % {"name": name[:63]},
            _("GET /api/v1/servers lists the names."),
            code="unknown_server",
        )
    return server
