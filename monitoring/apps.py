from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "monitoring"

    def ready(self) -> None:
        # It says what is known of failed runs to whoever asks for that of a log.
        from monitoring.services import diagnosis_parts  # noqa: F401
