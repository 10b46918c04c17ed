"""`python answer_once.py MODEL DTYPE`, run by the Python of a stack: vLLM loads the model and answers one prompt.

It is a file that stands alone: that Python has vLLM, and nothing of ours.
"""

import sys
import time

PROMPT = "1 2 3 4"
TOKENS = 16


def main(model: str, dtype: str) -> int:
    del sys.path[0]  # the folder of this file, whose names are not for that Python
    from vllm import LLM, SamplingParams  # it takes seconds, and is there in that Python only

    began = time.monotonic()
    llm = LLM(model=model, dtype=dtype, enforce_eager=True, max_model_len=256, max_num_seqs=1)
    loaded = time.monotonic()
    answers = llm.generate([PROMPT], SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True))
    took_s = time.monotonic() - loaded
    count = len(answers[0].outputs[0].token_ids)
    print(f"{count} tokens in {took_s:.2f} s, loaded in {loaded - began:.1f} s: {model}", flush=True)
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
