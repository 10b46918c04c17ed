"""Every address of the console; each app adds its own."""

from django.contrib.auth.decorators import login_not_required
from django.urls import include, path
from django.views.i18n import set_language

from console import accounts, doubt_views, health, own_pages, rq_pages
from console.api import api

app_patterns = (
    [
        path("login/", accounts.SignIn.as_view(), name="login"),
        path("logout/", accounts.SignOut.as_view(), name="logout"),
        path("healthz", health.healthz, name="healthz"),
        path("doubt/", doubt_views.banner, name="doubt-banner"),
        path("doubt/end", doubt_views.end, name="doubt-end"),
        path("readyz", health.readyz, name="readyz"),
        path("certificate/", own_pages.certificate, name="certificate"),
        path("certificate/ca.crt", own_pages.authority, name="authority"),
        path("ports/", own_pages.port_list, name="port-list"),
        path("ports/ports.csv", own_pages.port_file, name="port-file"),
    ],
    "console",
)

urlpatterns = [
    path("", include(app_patterns)),
    path("i18n/setlang/", login_not_required(set_language), name="set_language"),
    path("api/v1/", api.urls),
    path("administration/", include(rq_pages.admin_patterns)),
    path("administration/rq/", include(rq_pages.rq_patterns)),
    # First, for /servers/join/ is a page and not the server of that name.
    path("", include("deployments.urls")),
    path("", include("monitoring.urls")),
]

handler400 = "console.failures.bad_request"
handler403 = "console.failures.forbidden"
handler404 = "console.failures.not_found"
handler500 = "console.failures.our_mistake"
