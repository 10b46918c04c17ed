"""What is masked before it is written, and what is left as it was printed."""

import base64
import json
import time

import pytest

from deployments.agent.masks import Masks
from deployments.agent.writer import SpoolWriter

SECRET = "Xk93hd72Lq0pZw81"
SECRETS = [
    f"password={SECRET}", f"PASSWORD: {SECRET}", f'"password": "{SECRET}"', f"passwd = '{SECRET}'", f"pwd={SECRET};x",
    f"Authorization: Bearer {SECRET}", f"authorization: basic {base64.b64encode(SECRET.encode()).decode()}",
    f"https://lin:{SECRET}@mirror.bank/simple", f"redis://:{SECRET}@10.1.1.1:6379/0", f"api_key={SECRET}",
    f"--api-key {SECRET}", f"--api-key={SECRET}", f"['--api-key', '{SECRET}', '--port']", f"VLLM_API_KEY={SECRET}",
    f"hf_token={SECRET}", f"token={SECRET}", f'{{"access_token":"{SECRET}"}}', f"x-auth-token: {SECRET}",
    f"--token {SECRET}", f"sk-{SECRET}", f"hf_{SECRET * 2}", f"client_secret={SECRET}", f"密码：{SECRET}",
    f"口令: {SECRET}",
    f"AWS_SECRET_ACCESS_KEY={SECRET}", f"access_key_id: {SECRET}", f"eyJ{SECRET}.eyJ{SECRET}.{SECRET}",
    f"ghp_{SECRET * 2}", f"MYSQL_PASSWORD='a b {SECRET}'", f"private_key={SECRET}", f"credential: {SECRET}",
]  # fmt: skip
PLAIN = [
    "Avg prompt throughput: 2031.5 tokens/s, Running: 3 reqs",
    "max_tokens=512, token_ids=[1, 2]",
    "eos_token='<|im_end|>'",
    "tokenizer: /models/qwen3/tokenizer.json",
    "pad_token: <pad>, bos_token_id=151643",
    "num_secret_layers=3",
    "sha256 9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53",
    "password: required",
    "api_key=None",
    "unexpected token: <EOF>",
    "next token: helloworld",
    "basic configuration loaded",
    "token=128",
    "--max-num-batched-tokens 8192",
    "http://10.1.1.2:8000/v1/models",
    "git clone https://gitee.com/ascend/x.git",
    "a risk-assessment-of-everything-here",
    "task-0123456789abcdefgh",
    "the secret is out",
    "Please enter password:",
    "password is wrong",
    "forgot your password? yes",
    "token: ${HF_TOKEN}",
    "password=%(password)s",
    "hf_config=Qwen3Config",
    "time 10:11:12 a@b",
    "speculative token: 3",
]


@pytest.mark.parametrize("line", SECRETS)
def test_a_secret_is_masked(line):
    masked = Masks().masked(f"INFO {line}\nnext".encode()).decode()
    assert SECRET not in masked and "***" in masked and masked.endswith("\nnext")


@pytest.mark.parametrize("line", PLAIN)
def test_what_is_no_secret_stays(line):
    assert Masks().masked(line.encode()).decode() == line


def test_what_we_know_is_masked_wherever_it_stands():
    masks = Masks(["p@ss/wörd+1"])
    encoded = base64.b64encode("p@ss/wörd+1".encode()).decode()
    for form in ("p@ss/wörd+1", "p%40ss%2Fw%C3%B6rd%2B1", encoded):
        assert form.rstrip("=") not in masks.masked(f"x{form}y".encode()).decode()
    assert Masks(["abc"]).masked(b"abcdef abc") == b"abcdef abc"  # too short to be told from others


def test_names_of_the_site_are_masked_as_passwords_are():
    assert Masks(names=["licence_no"]).masked(b"LICENCE_NO=AB12-CD34") == b"LICENCE_NO=***"


def test_a_private_key_is_masked_over_its_lines():
    masks = Masks()
    first = masks.masked(b"key:\n-----BEGIN RSA PRIVATE KEY-----\nMIIEow")
    second = masks.masked(b"IBAAKCAQ\n-----END RSA PRIVATE KEY----- done\nafter")
    assert first == b"key:\n***\n***" and second == b"***\n*** done\nafter"
    assert Masks().masked(b'{"k":"-----BEGIN PRIVATE KEY-----\\nMII\\n-----END PRIVATE KEY-----"}') == b'{"k":"***'


def test_a_key_without_an_end_does_not_hide_the_rest_of_the_log():
    masks = Masks()
    masks.masked(b"-----BEGIN PRIVATE KEY-----")
    assert masks.masked(b"\n".join([b"x"] * 300)).count(b"***") < 250


@pytest.mark.parametrize(
    "line",
    [
        b"password=" * 4000,
        b"token=" * 6000,
        b"://" * 10_000,
        b"bearer " * 5000,
        b"eyJ" + b"a." * 15_000,
        b"\xff\xfe\x00" * 9000,
    ],
)
def test_a_hostile_line_costs_no_more_than_others(line):
    began = time.monotonic()
    Masks().masked(line)
    assert time.monotonic() - began < 2


def test_the_spool_holds_no_secret(tmp_path):
    path = tmp_path / "lines"
    writer = SpoolWriter(path)
    writer.masks.know([SECRET])
    writer.line("o", f"PASSWORD=other-secret {SECRET}".encode())
    writer.line("p", f"50 % {SECRET}".encode())
    writer.more("p", f"and {SECRET}".encode())
    writer.block("e", f"a\ntoken={SECRET}\nb\n".encode())
    writer.say(f"asked {SECRET}")
    writer.event("started", argv=["x", "--api-key", SECRET], env={"HF_TOKEN": "hf_" + SECRET * 2})
    writer.events(json.dumps({"e": "item", "found": f"password={SECRET}"}))
    writer.close()
    text = path.read_text()
    assert SECRET not in text and "other-secret" not in text
    lines = text.splitlines()
    assert len(lines) == 9 and lines[4].endswith("token=***")
    assert all(isinstance(json.loads(line.split("\t", 2)[2]), dict) for line in lines if "\tv\t" in line)
