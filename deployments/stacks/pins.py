"""The Python pins of a stack as a requirements file."""

from deployments.stacks.catalogue import Catalogue, Stack


def requirements(stack: Stack, catalogue: Catalogue) -> str:
    """requirements-npu.txt: the pins of a stack for a Kunpeng host."""
    pins = [
        f"vllm-ascend=={stack.vllm_ascend}", f"torch-npu=={stack.torch_npu}", f"torch=={stack.torch}",
        *([f"triton-ascend=={stack.triton_ascend}"] if stack.triton_ascend else []), f"vllm=={stack.vllm}", *stack.pins,
    ]  # fmt: skip
    glibc = f", glibc {stack.glibc_min} or newer" if stack.glibc_min else ""
    head = [
        f"# Python packages of the stack {stack.name} on a Kunpeng server (aarch64), Python {stack.python}{glibc}.",
        f"# Goes with CANN {stack.cann}, NNAL {stack.nnal} and driver {catalogue.driver_min(stack) or '?'} or newer.",
        "# Made by scripts/npu_requirements.py from deployments/stacks/stacks.json: change the data, not this file.",
        "# vllm and vllm-ascend ask for different versions of torch, so pip cannot resolve them at once: either",
        "#   pip install --no-deps -r requirements-npu.txt",
        "# and the rest by hand, or the steps that the page of the stack plans. Leave triton-ascend out on 310P.",
    ]
    extra = [f"--extra-index-url {url}" for url in catalogue.addresses["extra_indexes"]]
    return "\n".join([*head, *extra, *pins, ""])
