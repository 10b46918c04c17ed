"""Collecting on a server: hostile names and links, files that grow, unreadable and huge ones, a full disk, a kill."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from deployments.agent.pages import Stopped
from deployments.agent.support import INDEX, __main__, asked, files, part, rooted, send, sources
from deployments.agent.support.masking import Masks
from deployments.agent.support.part import Full, Part
from deployments.kinds.support_bundle import SOURCES, VARIABLE
from tests.waiting import until

ASKED = {"bundle": 1, "since": 0, "until": 0, "hosts": False, "names": [], "salt": "s", "most_mb": 8, "seconds": 20,
         "engines": []}  # fmt: skip


class Bench:
    """An agent whose config lies in a folder, and the inbox that takes what it sends."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.inbox, self.state = folder, folder / "inbox", folder / "state"
        self.root = folder / "root"
        for one in (self.inbox, self.state, folder / "etc", self.root / "etc", folder / "bin"):
            one.mkdir(parents=True)
        config = {"server_id": 1, "name": "kp-01", "redis_url": "redis://127.0.0.1:1/0", "prefix": "h:1:",
                  "key": "ab" * 32, "state_dir": str(self.state), "env": {"ASCEND_ROOT": str(self.root)}}  # fmt: skip
        (folder / "etc" / "config.json").write_text(json.dumps(config))
        (folder / "etc" / send.OWN).write_text(json.dumps({"inbox": str(self.inbox)}))
        self.env = {
            "ASCEND_CONFIG": str(folder / "etc" / "config.json"), "ASCEND_ATTEMPT": "a1-1-00000000",
            "ASCEND_ITEMS": str(folder / "items"), "HOME": "/home/asc", "ASCEND_PROCESS_LOG_PATH": "/plog",
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", VARIABLE: json.dumps(ASKED),
        }  # fmt: skip
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)

    def ask(self, monkeypatch, **more):
        monkeypatch.setenv(VARIABLE, json.dumps({**ASKED, **more}))

    def tool(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def collect(self, source):
        """(files of the part, what it lacks, exit code)."""
        code = __main__.main([source])
        told = [json.loads(line) for line in Path(self.env["ASCEND_ITEMS"]).read_text().splitlines()]
        sent = [one["data"] for one in told if one.get("told") == send.TOLD and one["data"]["source"] == source]
        with zipfile.ZipFile(self.inbox / sent[-1]["inbox"]) as packed:
            index = json.loads(packed.read(INDEX))
            found = {name: packed.read(name) for name in packed.namelist() if name != INDEX}
        assert [one["name"] for one in index["entries"]] == list(found)
        return found, {one["what"]: one["why"][1] for one in index["missing"]}, code


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "nice", lambda n: 0)
    monkeypatch.setattr(rooted, "_command", no_root)
    monkeypatch.setattr(part, "SPARE", 1)
    return Bench(tmp_path, monkeypatch)


def no_root(*_words):
    raise rooted.NotHad(sources.NOT_THERE)


def put(path, data=b"x\n", at=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if at:
        os.utime(path, (at, at))
    return path


def test_a_server_without_anything_says_so_of_each_source(bench):
    for source in SOURCES:
        found, lacks, code = bench.collect(source)
        assert code == 0 and lacks, source
        if source == "system":
            assert "environment.txt" in found
    assert not any((bench.state / "support").iterdir()), "nothing stays"


def test_what_the_console_asked_stays_out_of_the_environment_that_is_kept(bench, monkeypatch):
    bench.ask(monkeypatch, salt="5a17ed", names=["kp-01"])
    told = bench.collect("system")[0]["environment.txt"]
    assert b"ASCEND_PROCESS_LOG_PATH=/plog" in told
    assert VARIABLE.encode() not in told and b"5a17ed" not in told


def test_readings_come_from_the_tools_and_one_that_hangs_is_left_alone(bench, monkeypatch):
    bench.tool("npu-smi", 'echo "serial SN$*"; exit 3')
    bench.tool("hccn_tool", "sleep 60")
    found, lacks, _code = bench.collect("readings")
    assert b"$ npu-smi info\nserial SNinfo" in found["npu-smi/info.txt"] and b"exit code 3" in found["npu-smi/info.txt"]
    assert "npu-smi/info_t_topo.txt" in found and not lacks


def test_plog_is_newest_first_within_its_time_and_masked(bench, monkeypatch):
    now = time.time()
    plog = bench.root / "plog" / "debug" / "plog"
    put(plog / "plog-1_1.log", b"old\n", now - 90_000)
    put(plog / "plog-2_2.log", b"kp-01 10.1.2.3 password=hunter2\n", now - 50)
    put(plog / "plog-3_3.log", b"late \xff\xfe\n", now - 5)
    bench.ask(monkeypatch, since=int(now - 3600), until=int(now))
    found, lacks, _code = bench.collect("plog")
    assert list(found) == ["plog/plog/debug/plog/plog-3_3.log", "plog/plog/debug/plog/plog-2_2.log"] and not lacks
    text = found["plog/plog/debug/plog/plog-2_2.log"]
    assert b"kp-01" not in text and b"10.1.2" not in text and b"hunter2" not in text and text.startswith(b"host-")
    assert found["plog/plog/debug/plog/plog-3_3.log"] == b"late \xff\xfe\n", "invalid UTF-8 stays"


def test_no_link_leads_out_of_the_folder_and_names_are_tamed(bench):
    secret = put(bench.folder / "secret", b"mine\n")
    plog = bench.root / "plog"
    put(plog / "a\nb\x1b[2J.log", b"ok\n")
    put(plog / "..\\..\\c.log", b"ok\n")
    (plog / "link.log").symlink_to(secret)
    (plog / "out").symlink_to(bench.folder)
    os.mkfifo(plog / "pipe.log")
    put(plog / os.fsdecode(b"\xff\xfe") / "d.log", b"ok\n")
    found, _lacks, _code = bench.collect("plog")
    assert len(found) == 3 and all(b"mine" not in data for data in found.values())
    for name in found:
        assert name.isprintable() and ".." not in name.split("/") and "\\" not in name and not name.startswith("/")


def test_of_a_sparse_file_of_10_gb_the_end_is_taken_and_binary_is_left_out(bench, monkeypatch):
    bench.ask(monkeypatch, most_mb=1)
    big = put(bench.root / "plog" / "big.log")
    with big.open("r+b") as file:
        file.truncate(10 << 30)
        file.seek(10 << 30)
        file.write(b"\n" + b"the last words\n" * 10)
    began = time.monotonic()
    found, lacks, code = bench.collect("plog")
    assert time.monotonic() - began < 5 and code == 0
    assert "binary" in lacks["plog/plog/big.log"], "its end is full of zeros"
    put(bench.root / "plog" / "long.log", b"first\n" + b"line\n" * 500_000)
    found, lacks, _code = bench.collect("plog")
    assert 900_000 < len(found["plog/plog/long.log"]) <= (1 << 20) + 65536
    assert b"first" not in found["plog/plog/long.log"]


def test_a_file_that_grows_has_an_end_and_a_long_line_is_cut(tmp_path):
    made = Part(tmp_path / "p.zip", Masks("s"), 64 << 20, time.monotonic() + 20)
    with Path("/dev/urandom").open("rb") as file:
        endless = part.bounded(file, 1 << 20)  # as much as it had
        assert sum(len(piece) for piece in iter(lambda: endless(65536), b"")) == 1 << 20
    long = iter([b"before\n" + b"y" * 70_000, b"y" * 9_000_000, b"y\nafter\n"])
    made.add("long", lambda _n: next(long, b""))
    made.close()
    with zipfile.ZipFile(tmp_path / "p.zip") as packed:
        before, cut, after = packed.read("long").splitlines()
    assert (before, after) == (b"before", b"after") and cut.endswith(b"bytes of this line left out]")
    assert len(cut) < 66_000 and int(cut.split(b"[")[1].split()[0]) == 70_000 + 9_000_000 + 1 - 65_536


def test_a_request_longer_than_a_line_may_be_goes_whole(tmp_path):
    made = Part(tmp_path / "p.zip", Masks("s"), 64 << 20, time.monotonic() + 20)
    made.text("log", "prompt: 'tell " + "me a wish " * 20_000 + "'\nnext\n")
    made.close()
    with zipfile.ZipFile(tmp_path / "p.zip") as packed:
        text = packed.read("log")
    assert b"wish" not in text and text.endswith(b"\nnext\n")


def test_an_unreadable_file_is_told_and_the_rest_comes(bench, monkeypatch):
    put(bench.root / "plog" / "a.log")
    put(bench.root / "plog" / "b.log")
    real = files.opened

    def opened(folder, parts):
        if parts[-1] == "a.log":
            raise PermissionError(errno.EACCES, "no")
        return real(folder, parts)

    monkeypatch.setattr(files, "opened", opened)
    found, lacks, code = bench.collect("plog")
    assert list(found) == ["plog/plog/b.log"] and "Permission denied" in lacks["plog/plog/a.log"] and code == 0


def test_a_full_disk_fails_the_step_with_a_sentence_and_the_reason_still_travels(bench, monkeypatch):
    put(bench.root / "plog" / "a.log")
    monkeypatch.setattr(part, "SPARE", 1 << 62)
    found, lacks, code = bench.collect("plog")
    assert code == 1 and not found and "too little room" in lacks["plog"]
    assert not any((bench.state / "support").iterdir())


def test_a_disk_that_fills_while_it_packs(bench, monkeypatch):
    put(bench.root / "plog" / "a.log", b"text\n" * 100_000)

    def full(*_words):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("zipfile._ZipWriteFile.write", full)
    monkeypatch.setattr(__main__, "only", lambda path, missing: told.append(missing) or b"")
    told = []
    monkeypatch.setattr(send, "send", lambda config, source, data: None)
    assert __main__.main(["plog"]) == 1
    assert "too little room" in told[0][0]["why"][1] and not any((bench.state / "support").iterdir())


def test_the_limits_of_size_and_time_leave_what_was_gathered(bench, monkeypatch):
    for n in range(6):
        put(bench.root / "plog" / f"{n}.log", b"0123456789abcde\n" * 65536 * 2, time.time() - n)
    bench.ask(monkeypatch, most_mb=5)
    found, lacks, code = bench.collect("plog")
    assert 2 <= len(found) <= 3 and "size limit" in lacks["plog"] and code == 0
    made = Part(bench.folder / "p.zip", Masks("s"), 1 << 20, time.monotonic() - 1)
    with pytest.raises(Full, match="time limit"):
        made.text("a", "b")


def test_engines_give_what_they_were_told_and_wrote_without_requests(bench):
    folder = bench.state / "engines" / "e7"
    put(
        folder / "spec.json",
        b'{"argv": ["vllm", "--api-key", "s3cret"], "env": {"HF_TOKEN": "hf_0123456789abcdefgh"}}\n',
    )
    put(folder / "engine.log", b"INFO start\nReceived request 1: prompt: 'a wish'\nERROR end\n")
    (folder / "now.json").symlink_to("/etc/passwd")
    found, _lacks, _code = bench.collect("engines")
    assert set(found) == {"engines/e7/spec.json", "engines/e7/engine.log"}
    assert b"s3cret" not in found["engines/e7/spec.json"] and b"hf_01" not in found["engines/e7/spec.json"]
    assert b"wish" not in found["engines/e7/engine.log"] and b"ERROR end" in found["engines/e7/engine.log"]


def test_what_a_killed_job_left_goes_with_the_next(bench):
    env = {**os.environ, **bench.env}
    bench.tool("npu-smi", "sleep 30")
    process = subprocess.Popen([sys.executable, "-m", "deployments.agent.support", "readings"], env=env)
    until(lambda: (bench.state / "support" / "a1-1-00000000" / "readings.zip").exists())
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = bench.state / "support" / "a1-1-00000000"
    assert left.exists()
    __main__.sweep(bench.state / "support", now=time.time() + 60)
    assert left.exists(), "it may be another job's that still runs"
    __main__.sweep(bench.state / "support", now=time.time() + __main__.EXPIRED_S + 60)
    assert not left.exists()


def test_what_is_asked_has_to_be_understood(monkeypatch):
    monkeypatch.setenv(VARIABLE, "{}")
    with pytest.raises(Stopped):
        asked.read()


# ---------- on its way ----------


class Console:
    """Takes pieces; fails as `faults` say, one after the other."""

    def __init__(self, *faults):
        self.data, self.faults, self.now = b"", list(faults), 0.0

    def ask(self, head, piece):
        fault = self.faults.pop(0) if self.faults else None
        if fault == "lost":  # it came, and the answer did not
            self.data += piece
        if fault:
            raise OSError(fault)
        assert head["begin"] == len(self.data) or not piece
        self.data += piece
        return len(self.data)

    def send(self, data):
        def sleep(seconds):
            self.now += seconds

        send.upload(len(data), lambda at: data[at : at + 10], self.ask, sleep, lambda: self.now)


def test_a_part_goes_on_where_it_broke_off():
    data = bytes(range(95))
    for faults in ([], ["gone"], [None, "gone", "gone", None, None, "lost"], [None, "lost"] * 3):
        console = Console(*faults)
        console.send(data)
        assert console.data == data


def test_a_console_that_stays_away_is_given_up_with_a_sentence():
    console = Console(*["gone"] * 1000)
    with pytest.raises(Stopped, match="cannot be sent"):
        console.send(b"x" * 20)
    assert console.now >= send.TRIES_S


def test_a_console_that_only_answers_questions_is_given_up_too():
    console = Console(*[None, "gone"] * 1000)
    with pytest.raises(Stopped):
        console.send(b"x" * 20)
