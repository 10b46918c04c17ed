"""Plans for servers of made-up facts, and short words about them."""

from deployments.stacks import actions, plan
from deployments.stacks.catalogue import built_in
from deployments.stacks.options import Options

KNOWN = built_in()
NEW, OLD = KNOWN.stacks["vllm-ascend-0.23.0"], KNOWN.stacks["vllm-ascend-0.18.0"]
PAIRED = {"driver": "25.5.2", "firmware": "7.8.0.6.201", "firmware_range": ["7.0.0–7.9.99"]}
WHOLE = {**PAIRED, "cann": ["9.1.0"], "ops": ["9.1.0"], "nnal": ["9.1.0"]}
SUPPORTED = ["A2", "A3", "310P", "A5"]
PACKAGES = actions.PACKAGES


def made(has, stack=NEW, **options):
    return plan.make(has, stack, KNOWN, Options(**options))


def keys(steps, layer=None):
    return [step.key for step in steps if layer in (None, step.layer)]


def step(made_plan, key):
    return next(step for step in made_plan.steps if step.key == key)


def commands(made_plan, layer):
    return [" ".join(step.argv) for step in made_plan.steps if step.layer == layer]
