"""What the pages and the command of joining many servers say of each host."""

from typing import Any

from django.utils.translation import gettext_lazy as _

from deployments.join_texts import TROUBLE, Trouble
from deployments.models import JoinRow
from deployments.models.join_many import RowState

PROBLEMS = {
    "no_name": Trouble(
        _("The console's machine cannot resolve this name."), _("Check its spelling and the DNS, or write an address.")
    ),
    "no_route": Trouble(
        _("There is no way to this address."), _("Check the address, that the machine is up, and the routes.")
    ),
    "refused": Trouble(
        _("Nothing listens on this port."), _("Start sshd there, or write the port that it listens on.")
    ),
    "timeout": Trouble(
        _("It did not answer in time."), _("Let the console's machine reach this port by TCP; a firewall is likely.")
    ),
    "not_ssh": Trouble(_("What answers is no SSH server."), _("Write the port that sshd listens on.")),
    "no_algorithm": Trouble(
        _("Console and host have no SSH algorithm in common."), _("Let sshd there offer an ed25519 host key.")
    ),
    "auth": Trouble(
        _("User, password or key were not accepted."),
        _("Check the user of this line, then try again with the right password or key."),
    ),
    "key_changed": Trouble(
        _("The host shows another key than the one that was confirmed."),
        _("Somebody may stand between, or the machine was set up anew. Only in that case forget the old key."),
    ),
    "key_forgotten": Trouble(_("Its old key was forgotten."), _("Try it again to see and confirm the new one.")),
    "no_sudo": Trouble(
        _("This user may not become root with sudo."),
        _("Give it sudo, log in as root, or name a folder to install into without root."),
    ),
    "sudo_password": Trouble(_("Sudo there wants a password."), _("Try again and give the password for sudo.")),
    "no_command": Trouble(_("The host lets nobody run commands by SSH."), _("Give this user a shell there.")),
    "lost": Trouble(_("The connection broke."), _("Try again; what was begun there is repaired.")),
    "late": Trouble(_("A command there took too long."), _("See its output, then try again.")),
    "overtime": Trouble(
        _("The hour for which the credentials were kept is over."), _("Try again and give them again.")
    ),
    "interrupted": Trouble(
        _("The console was restarted meanwhile, and keeps no credentials."), _("Try again and give them again.")
    ),
    "cancelled": Trouble(_("It was cancelled."), _("Try again to let it join.")),
    "unconfirmed": Trouble(_("Its host key was not confirmed."), _("Confirm it, then try again.")),
    "console": Trouble(_("The console made no command for it."), _("See what it says, then try again.")),
    "script": Trouble(_("The joining script stopped."), _("See its output, mend what it says, then try again.")),
}

LOOKS = {
    RowState.NEW: ("stale", "state-queued"),
    RowState.KEYED: ("info", "state-info"),
    RowState.READY: ("stale", "state-queued"),
    RowState.CONNECTING: ("info", "state-running"),
    RowState.INSTALLING: ("info", "state-running"),
    RowState.JOINED: ("ok", "state-ok"),
    RowState.FAILED: ("critical", "state-failed"),
    RowState.CANCELLED: ("stale", "state-cancelled"),
    RowState.LEFT_OUT: ("stale", "state-cancelled"),
}


def problem(row: JoinRow) -> dict[str, Any] | None:
    """{"what", "do", "detail"} of a row with a problem; the detail came from the host."""
    code = row.problem.get("code")
    if not code:
        return None
    told = TROUBLE.get(row.problem.get("trouble", "")) or PROBLEMS.get(code) or PROBLEMS["script"]
    return {**told._asdict(), "code": code, "detail": row.problem.get("detail", "")}
