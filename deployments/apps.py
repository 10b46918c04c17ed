from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    name = "deployments"

    def ready(self) -> None:
        # They say how their kinds are filled in, and when a wave of a campaign may begin: in every process.
        from deployments.services import campaigns, installs, resets  # noqa: F401
