from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    name = "deployments"

    def ready(self) -> None:
        from deployments.services import installs  # noqa: F401 - it says how its kinds are filled in
