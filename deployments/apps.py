from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    name = "deployments"

    def ready(self) -> None:
        from deployments.services import installs, resets  # noqa: F401 - they say how their kinds are filled in
