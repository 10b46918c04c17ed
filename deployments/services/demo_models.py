"""The models that simulated servers were made with: known from the start, as if a look had told of them."""

from collections.abc import Sequence
from typing import Any

from deployments.demo import models
from deployments.models import Artifact, ArtifactPlace, Server
from deployments.services import artifacts


def enlist(fleet: Sequence[Server | None]) -> int:
    """Rows for those of which no model was ever known; how many copies. The servers stand in the fleet's order, None
    for one whose name a real server has."""
    known = set(ArtifactPlace.objects.filter(server__simulated=True).values_list("server", flat=True).distinct())
    told = {server: models.of_fleet(index) for index, server in enumerate(fleet) if server and server.pk not in known}
    if not told:
        return 0
    rows = _artifacts([row for every in told.values() for row in every])
    made = [_place(server, rows, row["model"]) for server, every in told.items() for row in every]
    return len(ArtifactPlace.objects.bulk_create(made))


def _artifacts(told: list[dict[str, Any]]) -> dict[str, Artifact]:
    """{fingerprint: row} of each content, made where there is none."""
    every = {row["model"]["fingerprint"]: row for row in told}
    there = Artifact.objects.filter(fingerprint__in=every).values_list("fingerprint", flat=True)
    Artifact.objects.bulk_create(_artifact(every[one]["model"]) for one in sorted(every.keys() - set(there)))
    rows = {row.fingerprint: row for row in Artifact.objects.filter(fingerprint__in=every)}
    for fingerprint, row in rows.items():
        parent = rows.get(every[fingerprint]["parent"])
        if parent and row.parent_id is None:
            row.parent = parent
            row.save(update_fields=["parent"])
    return rows


def _artifact(model: dict[str, Any]) -> Artifact:
    return Artifact(
        name=model["name"], fingerprint=model["fingerprint"], format=model["format"], bytes=model["bytes"],
        summary=artifacts.summary(model), simulated=True,
    )  # fmt: skip


def _place(server: Server, rows: dict[str, Artifact], model: dict[str, Any]) -> ArtifactPlace:
    return ArtifactPlace(
        artifact=rows[model["fingerprint"]], server=server, path=model["path"], bytes=model["bytes"],
        problems=artifacts.problems(model),
    )  # fmt: skip


def forget() -> None:
    """Take away simulated models whose servers were removed: they lie nowhere, and never lay anywhere else."""
    Artifact.objects.filter(simulated=True, places__isnull=True).delete()
