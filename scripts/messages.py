#!/usr/bin/env python3
"""Take every text of templates and Python into the Chinese catalogue and compile it.

Usage: make messages. Needs Debian's gettext. Lists what still has no translation and then exits with 1.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import polib

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "console" / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
LEFT_OUT = [".venv", "var", "wheels", "tests"]


def extract() -> None:
    ignored = [word for folder in LEFT_OUT for word in ("--ignore", folder)]
    command = [sys.executable, "manage.py", "makemessages", "--locale", "zh_Hans", "--add-location", "file", *ignored]
    subprocess.run(command, cwd=ROOT, check=True)


def tidy() -> list[str]:
    """Sort by text and drop the date, so that a change shows only what changed; the texts without a translation."""
    catalogue = polib.pofile(str(CATALOGUE), wrapwidth=120)
    for name in ("POT-Creation-Date", "Report-Msgid-Bugs-To"):
        catalogue.metadata.pop(name, None)
    for gone in catalogue.obsolete_entries():
        catalogue.remove(gone)
    catalogue.sort(key=lambda entry: entry.msgid.lower())
    catalogue.save()
    catalogue.save_as_mofile(str(CATALOGUE.with_suffix(".mo")))
    return [entry.msgid for entry in catalogue if not entry.translated()]


def main() -> None:
    if not shutil.which("xgettext"):
        sys.exit("Texts are collected by gettext, which is not here. Install it (on Debian: apt-get install gettext).")
    extract()
    missing = tidy()
    if missing:
        sys.exit("These texts have no translation yet; write them into the catalogue:\n" + "\n".join(missing))


if __name__ == "__main__":
    main()
