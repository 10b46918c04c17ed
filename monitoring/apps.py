from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "monitoring"

    def ready(self) -> None:
        # It says what is known of failed runs to whoever asks for that of a log, and tells alerts and remedies of
        # deployments what is known of a replica's.
        from monitoring.services import diagnosis_parts, replica_diagnosing  # noqa: F401
