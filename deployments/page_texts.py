"""What the scripts of the job pages say; see static/js/texts.js."""

from django.utils.translation import gettext_noop as _

LIST: list[str] = []
JOB: list[str] = []
