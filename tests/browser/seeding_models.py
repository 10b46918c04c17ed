"""What seeding.py does for the pages that bring models in."""


def model_looked(server="kp-01", job=0):
    """A look at a download has ended well there, the one of that number or a new one; its number."""
    from deployments.models import Attempt
    from tests.browser import seeding
    from tests.deployments.model_reports import REPORT

    params = {"source": "huggingface", "model": "Qwen/Qwen2.5-7B-Instruct", "target": "", "folder": "/models/x"}
    number = job or seeding.job(server, "download_look", params=params)["job"]
    Attempt.objects.filter(job=number).update(report=REPORT)
    seeding.ended(number)
    return number


def uploads():
    from deployments.services import model_uploads

    return [model_uploads.as_json(one) for one in model_uploads.present()]
