"""REST: models that are brought to servers, from hubs, folders and uploads."""

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.idempotency import answer_once
from deployments.asked import Strict, find_server, user_of
from deployments.services import jobs, model_copies, model_downloads, model_sources, model_uploads

router = Router(tags=["models"])


class NewLook(Strict):
    server: str = Field(max_length=63)
    source: Literal["huggingface", "modelscope", "web", "path", "upload"]
    model: str = Field(max_length=1000, description="Its name on the hub, address, path, or the id of an upload")
    revision: str = Field(default="", max_length=200)
    target: str = Field(default="", max_length=1000, description="Folder; empty: in the server's folder of models")
    only: list[str] = Field(default_factory=list, max_length=50, description="Patterns, such as *.safetensors")
    leave_out: list[str] = Field(default_factory=list, max_length=50)
    pickles: bool = Field(default=False, description="Take .bin and .pt files, too")
    in_place: bool = Field(default=False, description="List a shared path where it lies, without a copy")
    at_once: int = Field(default=4, ge=1, le=16)


class Confirmed(Strict):
    ticket: str = Field(default="", max_length=100)


class NewCopy(Strict):
    source: str = Field(max_length=63, description="Server that has it")
    path: str = Field(max_length=1000, description="Folder there")
    server: str = Field(max_length=63, description="Server that gets it")
    target: str = Field(default="", max_length=1000)
    address: str = Field(default="", max_length=253, description="Of the source; empty: as its agent tells")
    port: int = Field(default=0, ge=0, le=65535, description="0: as the site has it")
    ticket: str = Field(default="", max_length=100)


class NewFile(Strict):
    name: str = Field(max_length=600)
    size: int = Field(ge=0)


class NewUpload(Strict):
    name: str = Field(max_length=100, description="Of the model's folder")
    files: list[NewFile] = Field(max_length=model_uploads.MOST_FILES)
    pickles: bool = False


class Piece(Schema):
    begin: int = Field(ge=0, description="Byte of the file at which it begins")


@router.get("/model-sources", summary="The site's hubs of models and their tokens, masked")
def show_sources(request: HttpRequest) -> HttpResponse:
    return Answer(model_sources.as_json())


@router.post("/model-looks", summary="Look what a download would fetch", response={201: dict[str, Any]})
def new_look(request: HttpRequest, new: NewLook) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        given = new.dict()
        server = find_server(given.pop("server"))
        job = model_downloads.look(server, given, by=user_of(request))
        return 201, model_downloads.as_json(model_downloads.find_look(job.pk))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/model-looks/{int:job_id}", summary="What it has found")
def show_look(request: HttpRequest, job_id: int) -> HttpResponse:
    return Answer(model_downloads.as_json(model_downloads.find_look(job_id)))


@router.post(
    "/model-looks/{int:job_id}/download", summary="Download what was looked at", response={201: dict[str, Any]}
)
def confirm(request: HttpRequest, job_id: int, given: Confirmed | None = None) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        seen = model_downloads.find_look(job_id)
        job = model_downloads.download(seen, by=user_of(request), ticket=given.ticket if given else "")
        return 201, jobs.as_json(job)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.post("/model-copies", summary="Copy a model from server to server", response={201: dict[str, Any]})
def new_copy(request: HttpRequest, new: NewCopy) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        wish = model_copies.Wish(
            find_server(new.source), new.path, find_server(new.server), new.target, new.address, new.port
        )
        serving, copying = model_copies.copy(wish, by=user_of(request), ticket=new.ticket)
        return 201, {"serves": jobs.as_json(serving), "copies": jobs.as_json(copying)}

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/model-uploads", summary="Uploads that the console keeps")
def list_uploads(request: HttpRequest) -> HttpResponse:
    return Answer({"uploads": [model_uploads.as_json(one) for one in model_uploads.present()]})


@router.post("/model-uploads", summary="Begin an upload, or find the open one", response={201: dict[str, Any]})
def new_upload(request: HttpRequest, new: NewUpload) -> HttpResponse:
    files = [(one.name, one.size) for one in new.files]
    made = model_uploads.begin(new.name, files, by=user_of(request), pickles=new.pickles)
    return Answer(model_uploads.as_json(made), status=201)


@router.get("/model-uploads/{upload}", summary="How far each file has come")
def show_upload(request: HttpRequest, upload: str) -> HttpResponse:
    return Answer(model_uploads.as_json(model_uploads.find(upload)))


@router.put("/model-uploads/{upload}/files/{int:n}", summary="The next bytes of a file, as the body, 4 MB at most")
def put_piece(request: HttpRequest, upload: str, n: int, piece: Query[Piece]) -> HttpResponse:
    data = request.read(model_uploads.PIECE + 1)
    found = model_uploads.put(model_uploads.find(upload), n, piece.begin, data, by=user_of(request))
    return Answer(model_uploads.as_json(found))


@router.delete("/model-uploads/{upload}", summary="Take an upload away")
def delete_upload(request: HttpRequest, upload: str) -> HttpResponse:
    model_uploads.delete(model_uploads.find(upload), by=user_of(request))
    return Answer({"id": upload, "deleted": True})
