"""What leaves a server in a support bundle: no secret, no request, and names only on demand."""

import pytest

from deployments.agent.support.masking import Masks
from deployments.agent.support.secret_words import MASK, without_secrets


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "hf_abc"),
        ("export MODELSCOPE_API_TOKEN='some words here'", "some words"),
        ('{"api_key": "k-91", "model": "m"}', "k-91"),
        ("vllm serve --api-key s3cret --port 8000", "s3cret"),
        ("argv: ['--api-key', 's3cret', '--port']", "s3cret"),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("index https://who:pass@pypi.site/simple", "who:pass"),
        ("jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM.abc", "eyJhbG"),
        ("REDIS_PASSWORD: hunter2", "hunter2"),
    ],
)
def test_a_secret_is_masked(line, secret):
    found = without_secrets(line)
    assert secret not in found and MASK in found


@pytest.mark.parametrize(
    "line",
    [
        "max_num_batched_tokens=8192, max_model_len=32768",
        "prompt tokens: 12, generation tokens: 40",
        "Avg generation throughput: 40.1 tokens/s, Running: 3 reqs",
        "eos_token_id: 151645",
        "tokenizer='/models/qwen', tokenizer_mode=auto",
    ],
)
def test_what_is_no_secret_stays(line):
    assert without_secrets(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 10:00:00 [logger.py:39] Received request chatcmpl-1: prompt: 'a wish of mine', params: …",
        '{"messages": [{"role": "user", "content": "a wish of mine"}]}',
        '      "content": "a wish of mine",',
        "prompt_token_ids: [1, 2, 3]  a wish of mine",
        "<|im_start|>user a wish of mine",
        "request body = a wish of mine",
    ],
)
def test_a_line_with_a_request_is_left_out(line):
    masks = Masks("s")
    found = masks.line(line)
    assert "wish" not in found and "left out" in found and masks.count == 1


def test_names_and_addresses_become_the_same_word_everywhere():
    one, other = Masks("salt", ["kp-01", "KP-01.site"]), Masks("salt", ["kp-01"])
    first = one.line("kp-01 10.2.3.4 -> 10.2.3.9, mac 0c:42:a1:00:11:22 fe80::1:2:3:4")
    assert "kp-01" not in first and "10.2.3" not in first and "0c:42" not in first and "fe80" not in first
    assert other.line("kp-01") == one.line("KP-01") == one.name("kp-01")
    near, far = one.line("10.2.3.4"), one.line("10.2.3.9")
    assert near != far and near.partition(".")[0] == far.partition(".")[0], "both are on one network"
    assert Masks("other", ["kp-01"]).line("kp-01") != one.line("kp-01")


def test_what_only_looks_like_a_name_or_an_address_stays():
    masks = Masks("s", ["kp-01"])
    for line in ("0000:81:00.0 8.5.1 25.3.0.1.220 12:30:45 127.0.0.1 255.255.0.0 xkp-01", "kp-012 v1.2.3.4"):
        assert masks.line(line) == line


def test_names_stand_where_that_was_asked_for_and_secrets_do_not():
    line = Masks("s", ["kp-01"], hosts=True).line("kp-01 10.2.3.4 password=x1")
    assert line == f"kp-01 10.2.3.4 password={MASK}"
