"""REST: driver and firmware of servers, and the packages whose digests root goes by."""

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from deployments.asked import Strict, find_server, user_of
from deployments.models import VendorPackage
from deployments.services import host_changes, packages, stacks
from deployments.stacks import plan

router = Router(tags=["stacks"])


class NewPackage(Strict):
    name: str = Field(max_length=200, description="The file's name, for example `Ascend-hdk-910b-npu-driver_….run`")
    sha256: str = Field(max_length=64, description="As sha256sum prints it")
    size: int | None = Field(default=None, ge=1, lt=1 << 46, description="Bytes")
    source: str = Field(default="", max_length=300, description="Where the digest is from")


class DriverWish(Schema):
    driver: str = Field(default="", max_length=40, description="Version; empty: as it is")
    firmware: str = Field(default="", max_length=40, description="Version; empty: the one that goes with the driver")
    restart: str = Field(default="by_hand", max_length=20, description="by_hand, window or now")
    window: str = Field(default="", max_length=20, description="22:00-05:00, by the server's own clock")


@router.get("/packages", summary="Packages of the vendor whose digests are known")
def list_packages(request: HttpRequest) -> HttpResponse:
    rows = VendorPackage.objects.select_related("added_by")
    return Answer({"packages": [packages.as_json(row) for row in rows]})


@router.post("/packages", summary="Note the digest of a package")
def put_package(request: HttpRequest, new: NewPackage) -> HttpResponse:
    row = packages.put(new.name, new.sha256, by=user_of(request), size=new.size, source=new.source)
    return Answer(packages.as_json(row))


@router.delete("/packages/{name}", summary="Forget the digest of a package")
def delete_package(request: HttpRequest, name: str) -> HttpResponse:
    packages.remove(name, by=user_of(request))
    return Answer({"name": name, "known": False})


@router.get("/servers/{name}/driver-plan", summary="What would change driver and firmware of a server")
def driver_plan(request: HttpRequest, name: str, wish: Query[DriverWish]) -> HttpResponse:
    server = find_server(name)
    made = stacks.host_plan_for(server, stacks.read_options(wish.dict()), None)
    return Answer({**plan.as_json(made), "now": host_changes.now(server), "failure": server.host_failure})
