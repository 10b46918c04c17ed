"""Pages of benchmarks, playground and remedies."""

from django.urls import path

from deployments.views import benchmark_pages, playground, remedies

urlpatterns = [
    path("deployments/<slug:name>/benchmarks/", benchmark_pages.benchmark_list, name="benchmark-list"),
    path("deployments/<slug:name>/benchmarks/<int:pk>.csv", benchmark_pages.benchmark_csv, name="benchmark-csv"),
    path("deployments/<slug:name>/benchmarks/<int:pk>.json", benchmark_pages.benchmark_json, name="benchmark-json"),
    path("deployments/<slug:name>/chat", playground.playground, name="playground"),
    path("deployments/<slug:name>/chat/stream", playground.stream, name="playground-stream"),
    path("deployments/<slug:name>/replicas/<int:n>/remedy", remedies.replica_remedy, name="replica-remedy"),
]
