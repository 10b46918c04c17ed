"""History of a server as plots, a table and a file."""

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from console import spreadsheet
from console.errors import Invalid
from console.templatetags.frame import seconds_in_words, texts_for_scripts
from deployments.models import Server
from deployments.views.lookup import find_server
from monitoring import history
from monitoring.services import page_texts, plots, series

SPANS = (3600, 6 * 3600, 24 * 3600, 7 * 86400, 30 * 86400, 365 * 86400)


@require_GET
def server_plots(request: HttpRequest, name: str) -> HttpResponse:
    """?span= in seconds, or since= and until=; with=NAME, at most four times, for comparison."""
    server = find_server(name)
    since, until = series.asked(request.GET)
    given = request.GET.get("span", "")
    span = 0 if "since" in request.GET else int(given) if given.isascii() and given.isdigit() else series.SPAN_S
    others = _others(request, server)
    config = {
        "url": reverse("monitoring:server-plots-data", args=[name]),
        "csv": reverse("monitoring:server-plots-csv", args=[name]),
        "name": name, "span": span, "with": [one.name for one in others],
        "since": since.timestamp(), "until": until.timestamp(),
        "indices": {f"{one.npu_id}.{one.chip_id}": one.device_index for one in server.npus.all()},
    }  # fmt: skip
    names = Server.objects.present().exclude(pk=server.pk).order_by("name").values_list("name", flat=True)
    context = {
        "server": server, "config": config, "spans": [(one, seconds_in_words(one)) for one in SPANS], "span": span,
        "others": others,
        "choices": list(names[:2000]), "texts": texts_for_scripts(page_texts.PLOTS),
    }  # fmt: skip
    return render(request, "monitoring/server_plots.html", context)


@require_GET
@gzip_page
def server_plots_data(request: HttpRequest, name: str) -> JsonResponse:
    server = find_server(name)
    return JsonResponse(plots.whole(server, *series.asked(request.GET), _others(request, server)))


@require_GET
def server_plots_csv(request: HttpRequest, name: str) -> StreamingHttpResponse:
    found = series.read(find_server(name), *series.asked(request.GET))
    return spreadsheet.answer(f"{name}.csv", ("epoch_s", "npu", *history.NPU_FIELDS), plots.csv_rows(found))


def _others(request: HttpRequest, server: Server) -> list[Server]:
    wanted = list(dict.fromkeys(word[:63] for word in request.GET.getlist("with") if word))
    if len(wanted) > plots.MOST_OTHERS:
        raise Invalid(
            _("More than %(n)s servers are to be compared.") % {"n": plots.MOST_OTHERS}, _("Leave some of them out.")
        )
    return [found for found in map(find_server, wanted) if found.pk != server.pk]
