"""`python answer_reference.py ASK.json`: transformers answer prompts on the CPU, in float32.

Run by the Python of the tools, which knows nothing of ours; so it stands alone with the file beside it. ASK names
`model` (folder), `prompts` ([{id, prompt, reference}]), `max_tokens`, `max_length`, `remote_code`, `out`. Each line
of `out` is an answer, its first what it was answered with. `out` ends with a line `{"cannot": [zh, en]}` where it
could not.
"""

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import dequantized
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


def unset() -> Any:
    """Models made within have no numbers by chance: all of them are put in afterwards, and billions take minutes."""
    try:
        from transformers.modeling_utils import no_init_weights
    except ImportError:  # it has moved: slower, and as good
        return contextlib.nullcontext()
    return no_init_weights()


def loaded(folder: str, remote_code: bool) -> tuple[Any, list[tuple[str, str]]]:
    """(model, notes)."""
    if not (Path(folder) / dequantized.DESCRIPTION).is_file():
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=remote_code, use_safetensors=True
        )
        return model.eval(), []
    config = AutoConfig.from_pretrained(folder, trust_remote_code=remote_code)
    with unset():
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=remote_code, dtype=torch.float32)
    return model.eval(), dequantized.fill(model, folder)


def answer(model: Any, tokenizer: Any, prompt: dict[str, str], ask: dict[str, Any]) -> dict[str, Any]:
    ids = tokenizer(prompt["prompt"], return_tensors="pt")["input_ids"][:, : ask["max_length"] - ask["max_tokens"]]
    ends = tokenizer.eos_token_id
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=ask["max_tokens"], do_sample=False, num_beams=1,
        output_logits=True, return_dict_in_generate=True, pad_token_id=0 if ends is None else ends,
        temperature=None, top_p=None, top_k=None, repetition_penalty=1.0,
    )  # fmt: skip
    new = made.sequences[0, ids.shape[1] :]
    logprobs = [
        float(torch.log_softmax(row[0].float(), -1)[token]) for row, token in zip(made.logits, new, strict=True)
    ]
    tokens = [named(tokenizer, int(token)) for token in new]
    text = tokenizer.decode(new, skip_special_tokens=True)
    return {"id": prompt["id"], "text": text, "tokens": tokens, "logprobs": logprobs,
            "scored": scored(model, tokenizer, prompt["prompt"] + prompt["reference"], ask["max_length"])}  # fmt: skip


def named(tokenizer: Any, token: int) -> str:
    """Its text; its number where it is a part of a character, which all look the same."""
    text = str(tokenizer.decode([token]))
    return f"<{token}>" if "\ufffd" in text else text


def scored(model: Any, tokenizer: Any, text: str, length: int) -> list[float] | None:
    """[sum of the log probabilities, count] of all tokens behind the first; None for a text of one."""
    ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :length]
    if ids.shape[1] < 2:
        return None
    logits = model(ids).logits[0, :-1].float()
    found = torch.log_softmax(logits, -1).gather(1, ids[0, 1:].unsqueeze(1))
    return [float(found.sum()), found.numel()]


def main(path: str) -> int:
    ask = json.loads(Path(path).read_text(encoding="utf-8"))
    with Path(ask["out"]).open("w", encoding="utf-8", buffering=1) as out:
        try:
            began = time.monotonic()
            model, notes = loaded(ask["model"], ask["remote_code"])
            tokenizer = AutoTokenizer.from_pretrained(ask["model"], trust_remote_code=ask["remote_code"])
        except dequantized.Cannot as error:
            out.write(json.dumps({"cannot": list(error.args)}) + "\n")
            return 1
        out.write(json.dumps({"engine": "reference", "notes": notes, "loaded_s": time.monotonic() - began}) + "\n")
        count = len(ask["prompts"])
        with torch.inference_mode():
            for n, prompt in enumerate(ask["prompts"], 1):
                out.write(json.dumps(answer(model, tokenizer, prompt, ask)) + "\n")
                print(f"prompt {n} of {count}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
