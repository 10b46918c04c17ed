"""What the script of the playground says; see static/js/texts.js."""

from django.utils.translation import gettext_noop as _

CHAT = [
    _("You"),
    _("Model"),
    _("Stopped by you."),
    _("The answer broke off."),
    _("The console does not answer."),
    _("Try again in a moment."),
    _("Waiting for the first token"),
    _("TTFT %(ms)s ms"),
    _("%(rate)s tokens/s"),
    _("%(n)s tokens"),
    _("%(n)s tokens asked"),
    _("about %(n)s tokens"),
    _("ended at max_tokens"),
    _("Thoughts"),
    _("Copied"),
    _("Copying was refused: mark the text instead."),
]
