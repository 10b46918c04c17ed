"""REST: what quantizing a model would take on a server. The job itself is queued as every other: kind `quantize`."""

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from deployments.asked import find_server
from deployments.services import quantizing

router = Router(tags=["models"])


class QuantizeWish(Schema):
    model: str = Field(default="", max_length=1000, description="Folder of the model on the server")
    target: str = Field(default="", max_length=1000, description="Folder of the result, new or empty")
    model_type: str = Field(default="", max_length=80, description="The model's name as msModelSlim has it")
    quant_type: str = Field(default="w8a8", max_length=200, description="w8a8, w8a16, or `weight_bits 8, act_bits 8`")
    npus: list[str] = Field(default_factory=list, max_length=64, description="Bus ids; none: the CPU")
    accept: bool = Field(default=False, description="Take a recipe that is not verified, too")
    recipe: str = Field(default="", max_length=1000, description="A recipe file of your own, on the server")
    calibration: str = Field(default="", max_length=1000, description="A bundled set, or a jsonl file on the server")
    trust: bool = Field(default=False, description="Allow the model's own code")


@router.get("/servers/{name}/quantize-plan", summary="Recipe, sizes and command of quantizing a model")
def quantize_plan(request: HttpRequest, name: str, wish: Query[QuantizeWish]) -> HttpResponse:
    return Answer(quantizing.as_json(quantizing.plan(find_server(name), wish.dict())))
