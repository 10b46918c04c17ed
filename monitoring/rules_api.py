"""REST: the site's own rules, tried on past logs and saved."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Router

from console.answers import Answer
from console.errors import Invalid
from deployments.asked import Strict, user_of
from deployments.services import jobs
from monitoring.services import rule_trial, site_rules

router = Router(tags=["diagnoses"])


class Rules(Strict):
    text: str = Field(max_length=site_rules.MOST_BYTES, description="TOML, as in the file")


def _whole(site: site_rules.Site) -> HttpResponse:
    answer = Answer(
        {
            "text": site.text,
            "rules": [rule.id for rule in site.rules],
            "off": sorted(site.off),
            "problem": site.problem or None,
        }
    )
    answer["ETag"] = f'"{site.digest}"'
    return answer


@router.get("/diagnoses/site", summary="The site's own rules, and why they are not used where that is so")
def show(request: HttpRequest) -> HttpResponse:
    return _whole(site_rules.site())


@router.post(
    "/diagnoses/site/try", summary="Which past logs these rules would speak of", response={200: dict[str, Any]}
)
def attempt(request: HttpRequest, rules: Rules) -> HttpResponse:
    """Logs that succeeded come first: a rule that speaks of them names too little of its line."""
    jobs.check_may_operate(user_of(request))
    return Answer(rule_trial.on_past_logs(site_rules.check(rules.text)).as_json())


@router.put("/diagnoses/site", summary="Replace the site's own rules; If-Match is the ETag of what was read")
def replace(request: HttpRequest, rules: Rules) -> HttpResponse:
    over = request.headers.get("If-Match", "").strip('"')
    if not over:
        raise Invalid(
            _("If-Match is missing."), _("Send the ETag of GET /api/v1/diagnoses/site, so that no change is lost.")
        )
    return _whole(site_rules.save(rules.text, by=user_of(request), over=over))
