"""From the page to a joined agent and back: look for models, see them, delete one; and a simulated server's."""

import os
import re

import pytest

from tests.deployments.joining import Browser, Host
from tests.deployments.models_on_disk import model
from tests.waiting import until
from tests.whole import Whole


@pytest.fixture
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=1)
    yield whole
    whole.stop()


@pytest.fixture
def host():
    made = Host()
    yield made
    made.close()


def ended(console, token, path):
    """The job of that page, when it has ended."""
    number = int(re.fullmatch(r"/jobs/(\d+)/", path)[1])
    over = ("succeeded", "failed", "lost")
    return until(lambda: (job := console.call(f"/jobs/{number}", token))["state"] in over and job, 60, 0.3)


def models(console, token, **query):
    words = "&".join(f"{name}={value}" for name, value in query.items())
    return console.call(f"/models?{words}", token)["models"]


def test_models_are_found_shown_and_deleted(console, host):
    browser, token = Browser(console), console.token()
    joined = host.run(browser.command("kp-50")[1])
    assert joined.returncode == 0, joined.stdout + joined.stderr
    root = host.agent / "state" / "models"
    owner = root.parent.stat()
    for name, more in (("千问 3", {}), ("half", {"config": {"vocab_size": 302}})):
        model(root / name, **more)
    (root / "half" / "model-00002-of-00002.safetensors").unlink()
    for path in (root, *root.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)

    path, _page = browser.send("/models/scan", server="kp-50", folder=str(root), digests="1")
    assert ended(console, token, path)["state"] == "succeeded", browser.get(f"{path}raw")
    found = until(lambda: (rows := models(console, token, server="kp-50")) and len(rows) == 2 and rows, 60, 0.3)
    states = {row["name"]: row["state"] for row in found}
    assert states == {"千问 3": "whole", "half": "incomplete"}
    assert "model-00002-of-00002.safetensors is missing" in browser.get("/models/")

    whole = next(row for row in found if row["state"] == "whole")
    (copy,) = console.call(f"/models/{whole['id']}", token)["places"]
    assert len(whole["digest"]) == 64 and copy["path"] == str(root / "千问 3")
    path, _page = browser.send(f"/models/copies/{copy['id']}/delete", confirm="千问 3")
    assert ended(console, token, path)["state"] == "succeeded", browser.get(f"{path}raw")
    assert not (root / "千问 3").exists() and (root / "half").is_dir()
    until(lambda: models(console, token, state="gone"), 60, 0.3)

    (root / "half" / "mine.docx").write_text("x")
    half = next(row for row in found if row["name"] == "half")
    (copy,) = console.call(f"/models/{half['id']}", token)["places"]
    path, _page = browser.send(f"/models/copies/{copy['id']}/delete", confirm="half")
    job = ended(console, token, path)
    assert job["state"] == "failed" and "mine.docx" in str(job["reasons"]) and (root / "half").is_dir()

    (name,) = (one["name"] for one in console.call("/servers", token)["servers"] if one["simulated"])
    path, _page = browser.send("/models/scan", server=name, folder="")
    assert ended(console, token, path)["state"] == "succeeded"
    rows = until(lambda: models(console, token, fleet="simulated"), 60, 0.3)
    assert rows and all(row["simulated"] and row["servers"] == [name] for row in rows)
    assert 'class="simulated"' in browser.get(f"/models/{rows[0]['id']}/")
