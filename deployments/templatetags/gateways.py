"""The panel of a deployment's gateway, for the page of the deployment: `{% gateway_panel deployment %}`."""

from typing import Any

from django import template
from django.template import Context

from deployments.models import Deployment
from deployments.services import gateway_json

register = template.Library()


@register.inclusion_tag("deployments/_gateway_panel.html", takes_context=True)
def gateway_panel(context: Context, deployment: Deployment) -> dict[str, Any]:
    return {**gateway_json.panel(deployment), "may_operate": context.get("may_operate", False)}
