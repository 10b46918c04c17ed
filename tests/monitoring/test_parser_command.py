"""`manage.py parse`: the contract of the command line."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from monitoring import parsers

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests/fixtures/npu_smi/info_a2_910b4_25.2.3.txt"


def run(*arguments, stdin=b"", **environment):
    return subprocess.run(
        [sys.executable, "manage.py", "parse", *map(str, arguments)],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
    )


def test_it_reads_standard_input_and_touches_no_database():
    done = run("npu-smi-info", stdin=FIXTURE.read_bytes(), DATABASE_URL="postgres://nobody@127.0.0.1:1/none")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads(FIXTURE.with_suffix(".json").read_text())


def test_text_not_understood_ends_with_1_and_a_sentence():
    done = run("npu-smi-info", stdin=b"hello\n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"Traceback" not in done.stderr
    assert done.stderr.strip().endswith((b".", "。".encode()))


def test_it_reads_a_file_and_either_spelling_of_a_name(capsys):
    for name in ("npu-smi-info", "npu_smi_info"):
        call_command("parse", name, str(FIXTURE))
        assert json.loads(capsys.readouterr().out)["version"] == "25.2.3"


def test_the_list_names_every_parser(capsys):
    call_command("parse", list=True)
    assert capsys.readouterr().out.split() == parsers.names()


def test_a_failure_of_the_tool_is_a_reading_with_its_sentence_beside_it(tmp_path, capsys):
    text = tmp_path / "failed.txt"
    text.write_text("dcmi module initialize failed. ret is -8005\n")
    call_command("parse", "npu-smi-info", str(text))
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"error": -8005}
    assert shown.err.strip()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "No parser was named."),
        (["no-such-parser"], "There is no parser called no-such-parser."),
        (["__init__"], "There is no parser called __init__."),
        (["../../settings"], "There is no parser called ../../settings."),
        (["lscpu", "no/such/file"], "no/such/file cannot be read: No such file or directory."),
        (["lscpu", "."], ". cannot be read: Is a directory."),
    ],
)
def test_a_wrong_call_is_answered_in_a_sentence(arguments, said, settings):
    from django.utils.translation import override

    with override("en"), pytest.raises(CommandError, match=said.replace(".", r"\.")):
        call_command("parse", *arguments)


def test_bytes_that_are_no_text_are_answered_in_a_sentence(tmp_path):
    from django.utils.translation import override

    raw = tmp_path / "raw"
    raw.write_bytes(b"\xff\xfe\x00|")
    with override("zh-hans"), pytest.raises(CommandError, match="不是 UTF-8 文本"):
        call_command("parse", "lscpu", str(raw))
    raw.write_bytes("中".encode() * 4_000_000)
    with override("en"), pytest.raises(CommandError, match="longer than 2 MB"):
        call_command("parse", "lscpu", str(raw))


def test_standard_input_may_be_named(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"link status: UP\n")))
    call_command("parse", "hccn-link", "-")
    assert json.loads(capsys.readouterr().out) == {"values": {"link status": "UP"}}
