"""What the scripts of the job pages say; see static/js/texts.js."""

from django.utils.translation import gettext_noop as _

# static/js/log/ and static/js/times.js
JOB = [
    _("%(m)s min %(s)s s"),
    _("%(h)s h %(m)s min"),
    _("Line %(n)s"),
    _("%(n)s lines were lost here: the server could not keep them."),
    _("wanted %(wanted)s"),
    _("%(n)s more characters"),
    _("%(n)s more characters in the raw log"),
    _("Started on %(host)s, process %(pid)s"),
    _("Waits for the server to restart, at most %(span)s"),
    _("Waits until somebody restarts the server, at most %(span)s"),
    _("The server has restarted, after %(span)s; the job goes on"),
    _("Asked to stop (SIGINT)"),
    _("Told to end (SIGTERM)"),
    _("Killed (SIGKILL)"),
    _("Cancelling"),
    _("Succeeded"),
    _("Failed"),
    _("Cancelled"),
    _("Ended"),
    _("exit code %(n)s"),
    _("skipped"),
    _("ok"),
    _("warning"),
    _("failed"),
    _("unknown"),
    _("no match"),
    _("no error in the loaded lines"),
    _("complete"),
    _("following"),
    _("paused"),
    _("1 line"),
    _("%(n)s lines"),
    _("lines %(low)s–%(high)s of %(n)s"),
    _("No lines yet. They appear as the server sends them."),
    _("This attempt wrote no log."),
    _("Lines could not be loaded. Scroll to try again."),
    _("Following"),
    _("Follow"),
    _("To the end"),
    _("Follow · %(n)s new"),
    _("Copy lines (%(n)s)"),
    _("Copied: %(n)s lines"),
    _("The first %(n)s lines were copied. The raw log has all of them."),
    _("The lines could not be loaded, so nothing was copied."),
    _("Choose lines first: click a number, then another with Shift."),
    _("stalled since %(clock)s"),
    _("searching …"),
    _("%(n)s hits"),
    _("%(n)s of %(of)s lines searched"),
    _("The console does not answer: only the loaded lines were searched."),
    _(
        "The console does not answer, so no regular expression can be searched. Switch .* off to search the loaded"
        " lines."
    ),
    _("The console does not answer, so the log cannot be filtered. All loaded lines are shown."),
    _("No error in this log."),
    _("This log has %(n)s lines."),
    _("%(n)s of %(of)s lines"),
    _("All levels"),
    _("All processes"),
    _("Rank %(n)s"),
    _("Errors"),
    _("Warnings"),
    _("Info"),
    _("Debug"),
]

# static/js/model_upload.js
UPLOAD = [
    _("%(here)s of %(size)s, %(speed)s/s, %(left)s left"),
    _("Waiting for the console …"),
    _("The connection is gone; it goes on by itself."),
    _("Stopped. Choose the same files again to go on."),
    _("%(n)s files, %(size)s"),
    _("Nothing was chosen."),
]

# static/js/topics/replica_log.js
ENGINE_LOG = [
    _("Engine started, process %(pid)s"),
    _("Starting"),
    _("Loading"),
    _("Ready"),
    _("Degraded"),
    _("Stopped"),
    _("Draining"),
]

# static/js/topics/merged_log.js, static/js/log/many.js and sources.js
MERGED_LOG = [
    _("Line %(n)s of %(name)s"),
    _("No lines yet. They appear as the servers send them."),
    _("Every log is switched off."),
    _("%(n)s of %(total)s lines"),
    _("no lines"),
    _("its clock is %(n)s s fast, corrected"),
    _("its clock is %(n)s s slow, corrected"),
    _("its clock is not known"),
    _("The console does not answer. It is asked again."),
]

# static/js/topics/shared_log.js
SHARED_LOG = [
    _("This link to a log works no longer."),
]

# static/js/topics/deployment.js
DEPLOYMENT = [
    _("%(m)s min %(s)s s"),
    _("%(h)s h %(m)s min"),
]
