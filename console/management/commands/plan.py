"""`manage.py plan --model ID_OR_PATH [--chip 910B3 --hbm-mb 65536 --npus 8 | --server NAME] […] [--json]`."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.errors import ConsoleError
from console.language import pick
from deployments.services import serving_plans
from deployments.serving import limits, planner
from deployments.serving.planner import Plan

OPTIONS = ("servers", "max_model_len", "concurrency", "quant", "dtype", "utilization", "group", "server")


class Command(BaseCommand):
    help = "Whether a model fits on NPUs, on how many of them, and with which flags; or why not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--model", required=True, help="name, number or path of a model, or an id of the catalogue")
        parser.add_argument("--chip", default="", help="as npu-smi prints it (910B3)")
        parser.add_argument("--hbm-mb", default="", help="memory of one NPU as npu-smi prints it (65536)")
        parser.add_argument("--npus", default="", help="how many of them (8)")
        for name in OPTIONS:
            parser.add_argument(f"--{name.replace('_', '-')}", default="")
        parser.add_argument("--json", action="store_true", help="as GET /api/v1/serving-plan answers")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            asked = serving_plans.ask(options, local=True)
        except ConsoleError as error:
            raise CommandError(f"{error.what} {error.do}") from error
        found = serving_plans.answer(asked)
        if options["json"]:
            self.stdout.write(json.dumps(serving_plans.as_json(asked, found), ensure_ascii=False, indent=1))
            return
        length = planner.context(asked.spec, asked.wish)
        self.stdout.write(f"{asked.model} · {asked.chip} × {asked.wish.npus} · {length:,} tokens")
        self.stdout.write(f"  {pick(serving_plans.loaded_by(asked).text)}")
        for plan in found.plans:
            self._plan(plan)
        for one in found.refusals:
            self.stdout.write(f"  ✗ {one.way or '—'}: {pick(one.why)} {pick(one.do)}")

    def _plan(self, plan: Plan) -> None:
        titles = ", ".join(pick(planner.GOALS[goal]) for goal in plan.goals)
        nodes = f", {plan.nodes} servers" if plan.nodes > 1 else ""
        self.stdout.write(f"  ✓ {limits.words(plan.engine)} ({plan.engine.npus} NPU{nodes}): {titles}")
        parts = ", ".join(f"{name} {mb / 1024:.1f}" for name, mb in plan.memory.parts() if mb)
        self.stdout.write(f"    GiB: {parts}")
        self.stdout.write(f"    {plan.memory.tokens:,} tokens of cache, {plan.at_once:.1f} requests at once")
        self.stdout.write(f"    vllm serve … {' '.join(plan.flags)}")
