from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    name = "deployments"

    def ready(self) -> None:
        # They say how their kinds are filled in, when a wave of a campaign may begin, and take what jobs tell: in every
        # process.
        from deployments.services import (  # noqa: F401
            artifacts,
            benchmarks,
            campaigns,
            converting,
            deployed_models,
            evaluating,
            evaluations,
            gateways,
            installs,
            model_delete,
            model_downloads,
            quantizing,
            reconcile,
            resets,
            serve_jobs,
            serve_uses,
            support_parts,
        )
