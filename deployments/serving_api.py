"""REST: plans for serving a model."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from deployments.asked import Strict
from deployments.services import serving_check, serving_plans

router = Router(tags=["serving"])


class Wished(Schema):
    """Numbers come as texts, so that what is wrong with one is answered in words."""

    model: str = Field(max_length=200, description="Name or number of a model here, or an id of the catalogue")
    server: str = Field(default="", max_length=63, description="Plan for this server's NPUs")
    chip: str = Field(default="", max_length=40, description="As npu-smi prints it; 910B3 where it is left out")
    hbm_mb: str = Field(default="", max_length=12, description="Memory of one NPU as npu-smi prints it; 65536")
    npus: str = Field(default="", max_length=6, description="How many NPUs; 8")
    servers: str = Field(default="", max_length=6, description="How many such servers there are; 1")
    group: str = Field(default="", max_length=6, description="How many of them one HCCS group has; all")
    max_model_len: str = Field(default="", max_length=12, description="Context in tokens")
    concurrency: str = Field(default="", max_length=8, description="Requests of that length at once")
    quant: str = Field(default="", max_length=12, description="As it would be quantized: w8a8, w4a8, …")
    dtype: str = Field(default="", max_length=12, description="auto, bfloat16 or float16")
    utilization: str = Field(default="", max_length=6, description="Share of the memory for the engine; 0.9")


@router.get("/serving-plan", summary="Whether a model fits on NPUs, how, and why not")
def serving_plan(request: HttpRequest, wished: Query[Wished]) -> dict[str, Any]:
    asked = serving_plans.ask(wished.dict())
    return serving_plans.as_json(asked, serving_plans.answer(asked))


class Checked(Strict):
    settings: dict[str, Any] = Field(default_factory=dict, description="As GET /serving-settings describes them")
    model: str = Field(
        default="", max_length=200, description="Name or number of a model here, or an id of the catalogue"
    )
    server: str = Field(default="", max_length=63, description="Judge for this server's NPUs and vLLM")
    chip: str = Field(default="", max_length=40, description="As npu-smi prints it, where no server is named")
    guide: str = Field(default="", max_length=20_000, description="Lines of an older guide, to be understood")
    words: str = Field(default="", max_length=20_000, description="Further words of the command, as one types them")


@router.get("/serving-settings", summary="Settings of engines: types, defaults, limits, keys and variables")
def serving_settings(request: HttpRequest) -> HttpResponse:
    return Answer(serving_check.schema())


@router.post("/serving-settings/check", summary="What is wrong with settings, and the command that comes of them")
def check_settings(request: HttpRequest, asked: Checked) -> HttpResponse:
    return Answer(serving_check.check(asked.settings, **asked.dict(exclude={"settings"})))
