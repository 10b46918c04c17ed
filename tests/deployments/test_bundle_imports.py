"""What agents are sent is whole: every module of the bundle can be imported from it alone."""

import io
import os
import subprocess
import sys
import tarfile

from deployments.services import bundle

PARTS = (
    "deployments.agent.worker", "deployments.agent.link", "deployments.agent.sampler", "deployments.agent.runner",
    "deployments.agent.engines.keeper", "deployments.agent.gateways.keeper",
)  # fmt: skip


def test_every_plain_module_is_sent_with_what_it_imports(tmp_path):
    with tarfile.open(fileobj=io.BytesIO(bundle.agent().data)) as tar:
        tar.extractall(tmp_path, filter="data")
        names = [one.name for one in tar if one.name.startswith("lib/") and one.name.endswith(".py")]
    modules = sorted(name[4:-3].replace("/", ".").removesuffix(".__init__") for name in names)
    inside = [name for name in modules if ".inside." not in name and not name.endswith("__main__")]
    assert set(PARTS) <= set(inside)
    code = f"import importlib\nfor name in {inside!r}:\n    importlib.import_module(name)"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path / 'lib'}:{tmp_path / 'site'}"}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
