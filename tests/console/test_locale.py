"""Every sentence exists in Chinese, and what is compiled is what is written."""

import re
import subprocess
import sys

import polib
import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "console" / "locale" / "zh_Hans" / "LC_MESSAGES"
PLACES = re.compile(r"%\(\w+\)[sd]|%%|\{\w+\}")


@pytest.fixture(scope="module")
def catalogue():
    return polib.pofile(str(FOLDER / "django.po"))


def texts(entry):
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def test_every_text_is_translated_and_none_is_a_guess(catalogue):
    assert [entry.msgid for entry in catalogue if "fuzzy" in entry.flags or not all(texts(entry))] == []


def test_a_translation_names_the_same_places(catalogue):
    for entry in catalogue:
        wanted = set(PLACES.findall(entry.msgid)) | set(PLACES.findall(entry.msgid_plural or ""))
        for text in texts(entry):
            assert set(PLACES.findall(text)) == wanted, entry.msgid


def test_the_compiled_catalogue_is_made_of_this_one(catalogue):
    compiled = {(entry.msgctxt, entry.msgid): texts(entry) for entry in polib.mofile(str(FOLDER / "django.mo"))}
    assert compiled == {(entry.msgctxt, entry.msgid): texts(entry) for entry in catalogue}


def test_nothing_in_the_code_is_missing_from_the_catalogue(catalogue, tmp_path):
    """Reads the sources with xgettext as `make messages` does, into a folder of its own."""
    if subprocess.run(["which", "xgettext"], capture_output=True).returncode:
        pytest.skip("gettext is not installed: apt-get install gettext")
    for name in ("deployments", "monitoring", "templates"):
        (tmp_path / name).symlink_to(ROOT / name)
    # Without its own `locale`, into which makemessages would write the texts of that folder.
    (tmp_path / "console").mkdir()
    for path in (ROOT / "console").iterdir():
        if path.name != "locale":
            (tmp_path / "console" / path.name).symlink_to(path)
    (tmp_path / "locale").mkdir()
    code = (
        "import django, sys; from django.conf import settings;"
        "settings.configure(USE_I18N=True, LOCALE_PATHS=[sys.argv[1] + '/locale']); django.setup();"
        "from django.core.management import call_command;"
        "call_command('makemessages', locale=['zh_Hans'], symlinks=True, verbosity=0, keep_pot=True)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=tmp_path, check=True, timeout=120)
    found = polib.pofile(str(next((tmp_path / "locale").glob("*.pot"))))
    known = {(entry.msgctxt, entry.msgid) for entry in catalogue}
    assert sorted(entry.msgid for entry in found if (entry.msgctxt, entry.msgid) not in known) == []
