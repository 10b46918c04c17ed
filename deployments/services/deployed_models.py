"""What follows from a model in its lineage: the deployments that serve it."""

from collections.abc import Iterator

from django.utils.translation import gettext as _

from deployments.models import Artifact, Deployment
from deployments.services import model_lineage, model_page
from deployments.services.model_lineage import Further

MOST = 50


def deployed(rows: list[Artifact]) -> Iterator[tuple[int, Further]]:
    """One for each deployment whose revision in use is of one of the models."""
    found = Deployment.objects.filter(deleted_at=None, revision__artifact__in=rows).select_related("revision")
    for one in found.order_by("name")[:MOST]:
        if one.revision is None or one.revision.artifact_id is None:
            continue
        note = _("stopped") if one.stopped else _("revision %(n)s") % {"n": one.revision.n}
        url = model_page.address("deployments:deployment-detail", one.name)
        yield one.revision.artifact_id, Further("deployed", one.name, note, "", url, None)


model_lineage.FURTHER.append(deployed)
