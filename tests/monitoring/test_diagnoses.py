"""Rules speak of kinds of failures: each line here has values, versions and paths of its own."""

import json
import time
from pathlib import Path

import pytest
from django.core.management import call_command

from monitoring import diagnoses
from monitoring.diagnoses import rules, templates

FIXTURES = Path(__file__).parent.parent / "fixtures" / "failures"
KNOWN = [line.split("\t", 1) for line in (FIXTURES / "lines.tsv").read_text().splitlines()]
HEALTHY = (FIXTURES / "healthy.txt").read_text().splitlines()


@pytest.mark.parametrize(("name", "line"), KNOWN, ids=[f"{name}-{n}" for n, (name, _line) in enumerate(KNOWN)])
def test_a_failure_is_known_by_its_line(name, line):
    before = "INFO starting\n" * 20
    found = diagnoses.diagnose(f"{before}{line}\nINFO ended")
    assert found, line
    assert (found[0].rule.id, found[0].line) == (name, 21)


def test_healthy_lines_say_nothing():
    assert diagnoses.diagnose("\n".join(HEALTHY)) == []


def test_what_a_line_says_stands_in_cause_and_remedies():
    line = next(line for name, line in KNOWN if name == "kv-cache-smaller-than-context")
    found = diagnoses.diagnose(line)[0].as_json()
    assert "40960" in found["cause"]["zh"] and "12032" in found["cause"]["en"]
    assert "12032" in found["remedies"][0]["en"] and found["remedies"][0]["change"] == ["max_model_len"]


def test_the_cause_goes_before_what_follows_from_it():
    log = (FIXTURES / "out_of_memory_with_echoes.log").read_text()
    names = [one.rule.id for one in diagnoses.diagnose(log)]
    assert names[0] == "npu-out-of-memory"
    assert names.index("hccl-notify-timeout") < names.index("code-ei0002")


def test_device_rank_and_peer_are_told():
    line = "[rank3]: [ERROR] 2026-11-30 (PID:5, Device:6, RankID:3) EI0002: no record from remote rank: [7]"
    assert diagnoses.diagnose(line)[0].as_json()["details"] == {"device": "6", "rank": "3", "peer": "7"}


def test_a_log_in_pieces_is_judged_as_a_whole():
    whole = "\n".join([*HEALTHY, *(line for _name, line in KNOWN)])
    scanner = diagnoses.Scanner(diagnoses.signatures())
    for number, line in enumerate(whole.split("\n"), start=1):
        scanner.feed(line, number)
    at_once = [(one.rule.id, one.line) for one in diagnoses.diagnose(whole)]
    assert [(one.rule.id, one.line) for one in scanner.findings()] == at_once


def test_every_rule_has_remedies_in_both_languages():
    for rule in diagnoses.bundled():
        assert rule.remedies, rule.id
        for words in (rule.cause, *(one.words for one in rule.remedies)):
            assert any("\u4e00" <= char <= "\u9fff" for char in words.zh), rule.id
            assert not any("\u4e00" <= char <= "\u9fff" for char in words.en), rule.id
    names = [rule.id for rule in diagnoses.bundled()]
    assert len(set(names)) == len(names)


def test_jobs_of_remedies_are_kinds():
    from deployments import kinds

    named = {one.job for rule in diagnoses.bundled() for one in rule.remedies if one.job}
    assert named <= set(kinds.names())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[rule]]\nid = "x y"', "no id"),
        ('[[rule]]\nid = "x"', "names no signature"),
        ('[[rule]]\nid = "x"\nsays = ["abc"]', "no piece of"),
        ('[[rule]]\nid = "x"\nsays = ["some words"]\ncause = { zh = "甲" }', "zh and en"),
        ('[[rule]]\nid = "x"\nsays = ["some words"]\ncause = { zh = "甲", en = "{who}" }', "no signature keeps"),
        ('[[rule]]\nid = "x"\nsays = ["some words"]\nweigth = 3', "weigth"),
        ("[[rule", "Expected"),
        ('[[code]]\ncode = "banana"', "no code"),
    ],
)
def test_a_bad_rule_is_refused_in_words(text, words):
    with pytest.raises(rules.BadRule, match=words):
        rules.read(text, "serve")


def test_holes_stand_for_what_differs():
    found = templates.compiled("rank {n:rank} of {w:host} gave up: {*:why}").regex.search(
        "x Rank 3  of node-1 gave up: no"
    )
    assert found and found.groupdict() == {"rank": "3", "host": "node-1", "why": ""}
    with pytest.raises(templates.BadTemplate, match="twice"):
        templates.compiled("rank {n:a} and peer {n:a}")


def test_the_command_prints_findings_and_numbers_their_lines(tmp_path, capsys):
    log = tmp_path / "engine.log"
    log.write_bytes(b"\xff\xfe strange\r\nfine\r\nNPU out of memory. Tried to allocate 2.0 GiB\r\n")
    call_command("diagnose", str(log))
    found = json.loads(capsys.readouterr().out)
    assert (found[0]["id"], found[0]["line"]) == ("npu-out-of-memory", 3)
    assert set(found[0]) >= {"id", "stage", "line", "text", "cause", "remedies", "score"}
    log.write_text("all is well\n")
    call_command("diagnose", str(log))
    assert json.loads(capsys.readouterr().out) == []


def test_a_log_full_of_errors_ends_in_time(monkeypatch):
    monkeypatch.setattr("monitoring.diagnoses.scan.MOST_LINES", 200)
    scanner = diagnoses.Scanner(diagnoses.signatures())
    line = "EI0006 error code is 507035 failed: cannot open " * 80
    for first in range(1, 1_001, 100):
        scanner.feed("\n".join([line] * 100), first)
    assert scanner.looked == 200


@pytest.mark.parametrize(
    "line",
    ["0" * 3970 + "| Critical ", "a" * 3970 + "| Alarm | x ", "Access to model " + " " * 3900 + "is restricted",
     "PyTorch version " + " " * 3900 + "mismatc", "-" * 3900 + " (from versions: non"],
    ids=range(5),
)  # fmt: skip
def test_a_hostile_line_costs_no_more_than_others(line):
    """Logs are looked at by the process that stores those of all servers: minutes for one line would stop them all."""
    began = time.monotonic()
    scanner = diagnoses.Scanner(diagnoses.signatures())
    scanner.feed(line, 1)
    assert time.monotonic() - began < 5


def test_what_several_signatures_of_a_rule_keep_of_a_line_is_kept_together():
    rule = """
[[rule]]
id = "two-ways"
says = ["needs much more than there is", "wants {n:wanted} of {n:there}"]
cause = { zh = "要 {wanted}，有 {there}", en = "wants {wanted} of {there}" }
"""
    scanner = diagnoses.Scanner(diagnoses.Signatures(rules.read(rule, "serve")))
    scanner.feed("needs much more than there is: wants 5 of 3\nneeds much more than there is", 1)
    (found,) = scanner.findings()
    assert (found.words(found.rule.cause)["en"], found.times) == ("wants 5 of 3", 2)


def test_brackets_leave_with_a_value_that_the_line_did_not_say():
    text = """[[rule]]
id = "port-taken"
says = ["port {n:port} of {w:ip} is taken", "port {n:port} is taken"]
cause = { zh = "端口 {port}（地址 {ip}）被占用（见下）。", en = "Port {port} (address {ip}) is taken (see below)." }
remedies = [{ zh = "换一个（{{ip}}）。", en = "Take another ({{ip}})." }]
"""
    signatures = diagnoses.Signatures(rules.read(text, "serve"))
    told = {}
    for line in ("ERROR port 81 of 10.0.0.7 is taken", "ERROR port 81 is taken"):
        scanner = diagnoses.Scanner(signatures)
        scanner.feed(line, 1)
        told[line] = scanner.findings()[0].as_json()
    whole, short = told.values()
    assert whole["cause"] == {
        "zh": "端口 81（地址 10.0.0.7）被占用（见下）。",
        "en": "Port 81 (address 10.0.0.7) is taken (see below).",
    }
    assert short["cause"] == {"zh": "端口 81被占用（见下）。", "en": "Port 81 is taken (see below)."}
    assert short["remedies"] == [{"zh": "换一个（{ip}）。", "en": "Take another ({ip})."}]


# What these tell is the value itself, or a number that their sentence is about.
ABOUT_A_VALUE = {
    *("engine-exception", "mindie-says", "cluster-admission", "installer-says", "pip-arguments", "quantizer-says"),
    *("kv-cache-needed-larger", "npu-out-of-memory", "mamba-blocks-few", "memory-taken-at-start"),
    *("set-env-missing", "more-devices-than-visible", "hccl-buffer-too-small"),
}


def test_causes_are_whole_whichever_signature_found_them():
    """Of the rules above alone a text shows that a value is not known."""
    unknown = set()
    for rule in diagnoses.bundled():
        for says in rule.says:
            finding = diagnoses.Finding(rule, 1, "", dict.fromkeys(says.regex.groupindex, "7"), {}, 70)
            told = [finding.words(words) for words in (rule.cause, *(one.words for one in rule.remedies))]
            if any(
                "?" in text["en"] and "?" not in words.en
                for text, words in zip(told, (rule.cause, *(one.words for one in rule.remedies)), strict=True)
            ):
                unknown.add(rule.id)
    assert unknown == ABOUT_A_VALUE
