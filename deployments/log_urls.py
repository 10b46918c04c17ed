"""Addresses of what is asked of whole logs."""

from django.urls import path

from deployments.views import log_search, logs_everywhere

services = [
    pattern
    for service in log_search.SERVICES
    for pattern in (
        path(f"jobs/<int:pk>/{service}", log_search.job_log_service, {"service": service}, name=f"job-{service}"),
        path(
            f"deployments/<slug:name>/replicas/<int:n>/{service}",
            log_search.replica_log_service,
            {"service": service},
            name=f"replica-{service}",
        ),
        path(
            f"servers/<slug:name>/agent-log/{service}",
            log_search.agent_log_service,
            {"service": service},
            name=f"agent-{service}",
        ),
    )
]

urlpatterns = [path("logs/", logs_everywhere.logs_page, name="logs"), *services]
