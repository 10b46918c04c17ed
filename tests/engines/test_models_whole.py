"""The whole way of a model on a machine without an NPU: sample, quantize, evaluate, and its lineage. Each is a job that
the console queues and the host's agent runs with the real programs; pages and REST tell of it."""

from tests.waiting import until

WITHIN_S = 1800


def queued(operator, kind, **params):
    """The job as REST tells it when it has ended."""
    body = {"server": "kp-60", "kind": kind, "params": params}
    number = operator.console.call("/jobs", operator.token, body)["id"]
    job = operator.followed(f"/jobs/{number}/", WITHIN_S)
    assert job["state"] == "succeeded", operator.browser.get(f"/jobs/{number}/raw")[-6000:]
    return job


def artifacts(operator):
    return {row["name"]: row for row in operator.console.call("/models", operator.token)["models"]}


def test_a_sample_is_quantized_evaluated_and_its_lineage_shown(installed, operator, host):
    assert installed.job["state"] == "succeeded"
    until(lambda: all(step["state"] == "satisfied" for step in operator.plan()["steps"]), 120, 0.5)
    below = f"{host.agent}/state/models"
    source, target = f"{below}/tiny", f"{below}/tiny-w8a8"
    queued(operator, "sample_model", model="qwen2", layers="28", target=source)
    asked = {"model": source, "target": target, "model_type": "Qwen2.5-7B-Instruct", "quant_type": "w8a8"}
    made = queued(operator, "quantize", **asked, accept=True)
    found = until(lambda: rows if "tiny-w8a8" in (rows := artifacts(operator)) else None, 60, 0.5)
    parent, child = found["tiny"], found["tiny-w8a8"]
    assert child["format"] == "quantized" and child["bytes"] < parent["bytes"]
    proved = queued(operator, "evaluate", child=target, parent=source, max_tokens=16)

    # What was made of what, and by which job.
    lineage = operator.console.call(f"/models/{child['id']}/lineage", operator.token)
    page = operator.browser.get(f"/models/{child['id']}/")
    assert f"/jobs/{made['id']}/" in page and f"/models/{parent['id']}/" in page
    assert str(parent["id"]) in str(lineage) and f"/jobs/{proved['id']}/" in page
    gate = operator.console.call(f"/models/{child['id']}", operator.token)["gate"]
    assert gate, "it was evaluated"

    # Nothing of it is done twice, and nothing is written over.
    again = operator.console.call("/jobs", operator.token, {"server": "kp-60", "kind": "sample_model", "params": {
        "model": "qwen2", "layers": "28", "target": source}})  # fmt: skip
    job = operator.followed(f"/jobs/{again['id']}/", WITHIN_S)
    assert job["state"] == "succeeded" and {step["state"] for step in job["attempt"]["steps"]} == {"skipped"}
