from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "monitoring"

    def ready(self) -> None:
        # It tells alerts and remedies of deployments what is known of a replica's log.
        from monitoring.services import replica_diagnosing  # noqa: F401
