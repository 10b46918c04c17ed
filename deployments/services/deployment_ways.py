"""Where to go from the page of a deployment: what can be done with it, other pages about it, how it is called."""

import json
import shlex
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _

from deployments import kinds
from deployments.models import Artifact, Deployment
from deployments.services.deployment_page import Page


class Action(NamedTuple):
    """A button: `url` is a page that asks once more, or with `post` acts at once. `rare` ones stand in a menu."""

    title: str
    url: str
    css: str = ""
    post: bool = False
    rare: bool = False


def actions(page: Page) -> list[Action]:
    """For who may operate, the usual ones first."""
    deployment = page.deployment
    pause = (_("Resume"), "deployment-resume") if deployment.paused else (_("Pause"), "deployment-pause")
    wanted: list[tuple[Any, ...]] = [
        (_("Change settings"), "deployment-change", "" if deployment.stopped else "primary", False),
        (_("Scale"), "deployment-scale", "", False),
    ]
    if deployment.stopped:
        wanted += [(_("Start"), "deployment-start", "primary", False)]
    else:
        again = (_("Try again"), "deployment-start") if page.has_failed else (_("Restart"), "deployment-restart")
        rare = deployment.paused and not page.has_failed  # what is paused starts nothing anew
        wanted += [(*again, "", False, rare), (_("Stop"), "deployment-stop", "danger", False)]
    wanted += [
        (*pause, "", True, not deployment.paused),
        (_("Edit"), "deployment-edit", "", False, True),
        (_("Delete"), "deployment-delete", "danger", False, True),
    ]
    return [Action(one[0], reverse(f"deployments:{one[1]}", args=[deployment.name]), *one[2:]) for one in wanted]


def ways_on(deployment: Deployment) -> list[Action]:
    """Pages about it. That of its gateway, which the gateway's own panel leads to as well, is rare."""
    wanted = [(_("Playground"), "playground", False), (_("Benchmarks"), "benchmark-list", False)]
    if getattr(deployment, "gateway", None):
        wanted.append((_("Gateway"), "gateway-detail", True))
    return [
        Action(title, reverse(f"deployments:{name}", args=[deployment.name]), rare=rare) for title, name, rare in wanted
    ]


class Sample(NamedTuple):
    """A model that can be served now, if any, and the form that writes the sample model, if there is one."""

    model: Artifact | None
    url: str


def sample_model() -> Sample:
    """For a console on which nothing is served yet."""
    rows = Artifact.objects.filter(simulated=False, format__in=("hf", "quantized"), places__gone_at=None)
    model = rows.exclude(places=None).order_by("bytes").first()
    form = f"{reverse('deployments:job-new')}?kind=sample_model"
    return Sample(model, form if "sample_model" in kinds.offered() else "")


def calls(page: Page) -> list[tuple[str, str]]:
    """(what it is written in, the text) to copy; [] where nothing answers yet."""
    if not page.endpoint:
        return []
    hello = json.dumps(_("Hello"), ensure_ascii=False)
    model = json.dumps(page.model_name, ensure_ascii=False)
    body = shlex.quote(f'{{"model": {model}, "messages": [{{"role": "user", "content": {hello}}}]}}')
    curl = (
        f"curl {shlex.quote(page.endpoint)}/chat/completions \\\n"
        '  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\\n'
        f"  -d {body}"
    )
    python = (
        "import os\nfrom openai import OpenAI\n\n"
        f'client = OpenAI(base_url={json.dumps(page.endpoint)}, api_key=os.environ["KEY"])\n'
        f"stream = client.chat.completions.create(\n    model={model}, stream=True,\n"
        f'    messages=[{{"role": "user", "content": {hello}}}],\n)\n'
        'for piece in stream:\n    print(piece.choices[0].delta.content or "", end="", flush=True)'
    )
    return [("curl", curl), ("Python", python)]
