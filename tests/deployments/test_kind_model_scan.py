"""The kind `model_scan`: what it runs, and what it refuses."""

import pytest

from deployments.kinds import model_scan
from deployments.steps import BadParams, read_params


def test_it_only_reads():
    params = read_params(model_scan.Params, {"folder": "/data/models", "digests": True})
    (step,) = model_scan.steps(params)
    assert step.argv[1:] == ["-m", "deployments.artifacts.scan", "--digests", "--", "/data/models"]
    assert model_scan.locks(params) == [] and model_scan.undo(params) == []


@pytest.mark.parametrize("folder", ["models", "", "/a\nb"])
def test_a_folder_that_is_none(folder):
    with pytest.raises(BadParams, match="folder"):
        read_params(model_scan.Params, {"folder": folder})


def test_known_folders_are_looked_at_in_one_job():
    params = read_params(model_scan.Params, {"folder": "/data/a", "also": ["/data/b", "/srv/c"], "known": True})
    (step,) = model_scan.steps(params)
    assert step.argv[-5:] == ["--known", "--", "/data/a", "/data/b", "/srv/c"]
