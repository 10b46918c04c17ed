"""What seeding.py does for the pages of deployments."""


def deployments():
    """Every kind of deployment once; their names."""
    from tests.deployments import deployment_rows

    no_deployments()
    return deployment_rows.whole()


def no_deployments():
    from deployments.models import Artifact, Deployment, Npu, Reservation, Server

    Reservation.objects.all().delete()
    Deployment.objects.all().delete()
    Artifact.objects.all().delete()
    Npu.objects.filter(server__name__in=("kp-01", "kp-02", "kp-03")).delete()
    Server.objects.filter(name__in=("kp-02", "kp-03")).delete()


def deployment_moved(name, replica=None, **metrics):
    """A replica becomes ready (or what `metrics` say of its load changes), and pages hear of it."""
    from deployments.models import Deployment
    from deployments.services import reconcile
    from tests.deployments import deployment_rows

    row = Deployment.objects.get(name=name)
    one = row.replica_set.get(n=replica)
    one.state, one.progress, one.ready_at = "ready", None, one.created_at
    one.save()
    deployment_rows.told(one, **metrics)
    reconcile.tell(row.pk)
