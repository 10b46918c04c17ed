"""Errors that a person reads: what happened, then what to do."""


class ConsoleError(Exception):
    """A refusal in two sentences. `code` is stable, `status` is the HTTP status; texts are shown as they are."""

    code = "refused"
    status = 400

    def __init__(self, what: str, do: str, *, code: str | None = None, status: int | None = None) -> None:
        super().__init__(f"{what} {do}")
        self.what = what
        self.do = do
        self.code = code or self.code
        self.status = status or self.status

    def as_json(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": self.code, "what": self.what, "do": self.do}}


def brief(error: Exception) -> str:
    """What a library says of its failure, on one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class NotAllowed(ConsoleError):
    code = "not_allowed"
    status = 403


class NotFound(ConsoleError):
    code = "not_found"
    status = 404


class Invalid(ConsoleError):
    code = "invalid"
    status = 422


class Conflict(ConsoleError):
    code = "conflict"
    status = 409


class Unavailable(ConsoleError):
    code = "unavailable"
    status = 503
