"""Installs that simulated servers act out: every family of the demo; first install, upgrade and downgrade."""

import dataclasses

import pytest

from deployments.demo import contents
from deployments.services import faults
from deployments.stacks import verdict
from deployments.stacks.catalogue import built_in
from tests.deployments.acted import Acted, at_once

__all__ = ["at_once"]
pytestmark = pytest.mark.usefixtures("at_once")
NEW, OLD = "vllm-ascend-0.23.0", "vllm-ascend-0.18.0"
NOTHING = {"driver": None, "loaded": None, "firmware": None, "accepts": "", "whole": False, "user": False}
NO_CANN = tuple(f"usr/local/Ascend/{name}" for name in ("cann", "cann-9.1.0", "cann-8.5.1", "nnal"))
BARE = {**NOTHING, "gone": NO_CANN}
OLD_PAIR = {"driver": "24.1.0", "loaded": "24.1.0", "firmware": "7.5.0.1.129", "accepts": "[7.0.0,7.5.99]"}
BEFORE = ["tools", "run_group", "run_user"]
AFTER = ["reboot", "npu_smi", "check_stack"]
# install.md: a first install takes the driver and then the firmware, an upgrade the firmware and then the driver;
# neither has a downgrade, so both are uninstalled and what follows is a first install.
FIRST = [*BEFORE, "check_driver", "check_firmware", "driver", "firmware", *AFTER]
UPGRADE = [*BEFORE, "check_firmware", "check_driver", "firmware", "driver", *AFTER]
DOWNGRADE = [
    *BEFORE, "check_driver", "check_firmware", "uninstall_driver", "uninstall_firmware", "driver", "firmware", *AFTER,
]  # fmt: skip
FIRMWARE_ALONE = [*BEFORE, "check_firmware", "firmware", *AFTER]


def host_keys(made):
    """The steps that install.md orders; what else a plan looks at between them is its own affair."""
    ordered = {*FIRST, *DOWNGRADE}
    return [step.key for step in made.to_run if step.layer == "host" and step.key in ordered]


def word(server, stack):
    return verdict.of(server.installed(), built_in().stacks[stack], built_in()).word


CASES = [
    # server, what it has, stack, choices, mode, steps of the host layer, driver and firmware afterwards
    ("kp-01", BARE, NEW, {"firmware": "9.0.0.0.205"}, "first", FIRST, "26.0.rc1"),  # A2, 910B3
    ("kp-02", BARE, NEW, {}, "first", FIRST, "26.0.rc1"),  # A3: the catalogue knows the firmware
    ("kp-03", BARE, OLD, {"driver": "25.5.2", "firmware": "7.8.0.6.201"}, "first", FIRST, "25.5.2"),  # 310P, Kylin
    ("kp-06", BARE, NEW, {"firmware": "9.0.0.0.205"}, "first", FIRST, "26.0.rc1"),  # A2, 910B4
    ("kp-18", BARE, OLD, {"driver": "25.5.2", "firmware": "7.8.0.6.201"}, "first", FIRST, "25.5.2"),  # A2 card, Kylin
    ("kp-13", {}, NEW, {"firmware": "9.0.0.0.205"}, "upgrade", UPGRADE, "26.0.rc1"),  # A2, 910B1, openEuler 22.03
    ("kp-02", OLD_PAIR, NEW, {}, "upgrade", UPGRADE, "26.0.rc1"),
    ("kp-10", OLD_PAIR, NEW, {"driver": "25.3.rc1"}, "upgrade", UPGRADE, "25.3.rc1"),  # A3 of the wide table
    ("kp-12", OLD_PAIR, OLD, {"driver": "25.5.2", "firmware": "7.8.0.6.201"}, "upgrade", UPGRADE, "25.5.2"),  # 310P
    ("kp-07", OLD_PAIR, OLD, {"driver": "25.5.1", "firmware": "7.8.0.6.201"}, "upgrade", UPGRADE, "25.5.1"),  # 910B2
    ("kp-01", {}, NEW, {"driver": "25.2.0", "firmware": "7.8.0.2.212"}, "downgrade", DOWNGRADE, "25.2.0"),
    ("kp-02", {}, NEW, {"driver": "25.3.rc1"}, "downgrade", DOWNGRADE, "25.3.rc1"),
    ("kp-12", {}, OLD, {"driver": "25.0.rc1.1", "firmware": "7.7.0.1.231"}, "downgrade", DOWNGRADE, "25.0.rc1.1"),
    ("kp-20", {"firmware": "9.0.0.0.205"}, OLD, {"firmware": "7.8.0.2.212"}, "firmware", FIRMWARE_ALONE, "25.5.0"),
    ("kp-16", {}, OLD, {"firmware": "7.8.0.2.212"}, "upgrade", UPGRADE, "25.5.0"),  # half installed, npu-smi is dumb
    # A CANN of the layout before 8.5, beside the shared one.
    ("kp-08", {"gone": ("opt/vllm-ascend/lib",)}, "vllm-ascend-0.13.0rc1", {}, "none", [], "25.5.0"),
    ("kp-11", {}, NEW, {}, "none", [], "25.7.rc1"),  # A5 with a driver that will do
    ("kp-17", {"gone": ("opt/vllm-ascend",)}, NEW, {}, "none", [], "25.5.1"),  # A3, the environment alone
]  # fmt: skip


@pytest.mark.parametrize(("name", "has", "stack", "options", "mode", "keys", "driver"), CASES)
def test_plan_and_act_on_every_family(tmp_path, name, has, stack, options, mode, keys, driver):
    server = Acted(name, tmp_path, free=True, **has)
    made = server.plan(stack, **options)
    assert (made.mode, host_keys(made)) == (mode, keys)
    if mode in ("first", "upgrade"):
        assert word(server, stack) != verdict.MATCHES
    boot_id = server.facts()["boot_id"]
    log = server.install(stack, **options)
    assert log.ended["state"] == "succeeded", log.text
    skipped = {step.key for step in made.steps if step.state == "satisfied"}
    skipped |= {"one_prompt"} if server.made.index % 4 else set()  # no model lies there
    assert log.steps == [(step.title.en, "skipped" if step.key in skipped else "succeeded") for step in made.steps]

    assert word(server, stack) == verdict.MATCHES
    facts = server.facts()
    assert (facts["boot_id"] != boot_id) is (mode != "none")
    assert facts["driver"] == driver and facts["driver_whole"] is True and facts["paired"] is True
    assert facts["firmware"] == (options.get("firmware") or facts["firmware"])
    sample = server.member.sampler.sample()
    assert sample["version"] == driver and sample["error"] is None and sample["npus"]
    # A second install, with the same choices, finds everything there: it runs nothing, and skips every step.
    again = server.plan(stack, **options)
    assert not again.to_run and server.install(stack, **options).states == ["skipped"] * len(again.steps)


def test_it_is_told_to_be_simulated_before_anything_else(tmp_path):
    log = Acted("kp-17", tmp_path).install(NEW)
    assert log.kinds[0] == "s" and "This server is simulated" in log.texts[0] and "模拟" in log.texts[0]
    assert log.events[0]["e"] == "started"


@pytest.mark.parametrize(
    ("name", "has", "stack", "options", "code"),
    [
        ("kp-05", {}, NEW, {}, "unsupported_chip"),
        ("kp-03", BARE, NEW, {"driver": "26.0.rc1", "firmware": "9.0.0.0.205"}, "no_container"),  # glibc of Kylin
        ("kp-01", {}, NEW, {"driver": "24.1.0", "firmware": "7.5.0.1.129"}, "driver_below_minimum"),
    ],
)
def test_what_no_step_can_bring_about_is_no_plan(tmp_path, name, has, stack, options, code):
    made = Acted(name, tmp_path, **has).plan(stack, **options)
    assert code in [refusal.code for refusal in made.refusals] and not made.steps


def test_a_chip_whose_packages_no_source_names_asks_for_them(tmp_path):
    made = Acted("kp-11", tmp_path, free=True, **BARE).plan(NEW, driver="26.0.rc1", firmware="9.0.0.0.205")
    assert host_keys(made) == FIRST and any("No source names the files" in text.en for text in made.gaps)


def test_a_firmware_that_the_driver_does_not_accept_shows_in_the_pairing(tmp_path):
    server = Acted("kp-13", tmp_path)
    log = server.install(NEW, firmware="6.4.0.1.1")
    items = {event["key"]: event["verdict"] for event in log.events if event["e"] == "item"}
    assert items["pairing"] == "failed" and server.facts()["paired"] is False
    assert word(server, NEW) != verdict.MATCHES


# ---------- several stacks ----------


def test_stacks_lie_beside_each_other_and_one_goes_back_and_forth(tmp_path):
    server = Acted("kp-06", tmp_path, free=True, gone=("opt/vllm-ascend", *NO_CANN))
    for stack in (NEW, "vllm-ascend-0.22.1rc1"):
        assert server.install(stack).ended["state"] == "succeeded"
    facts = server.facts()
    assert (facts["stack_current"], facts["stack_before"]) == ("vllm-ascend-0.22.1rc1", NEW)
    root = facts["stacks_root"]
    back = server.run("rollback", stack=NEW, folder=f"{root}/{NEW}")
    assert back.states == ["succeeded"] * 2 and f"in use: {NEW}; before: vllm-ascend-0.22.1rc1" in back.text
    assert server.facts()["stack_current"] == NEW and word(server, NEW) == verdict.MATCHES

    gone = server.run("uninstall", stack="vllm-ascend-0.22.1rc1", folder=f"{root}/vllm-ascend-0.22.1rc1")
    assert gone.states == ["succeeded"] and "before points to no stack any more" in gone.text
    facts = server.facts()
    assert facts["stack_before"] == "" and [
        python["path"] for python in facts["pythons"] if root in python["path"]
    ] == [f"{root}/{NEW}/venv/bin/python3.11"]
    lost = server.run("rollback", stack="x", folder=f"{root}/vllm-ascend-0.22.1rc1")
    assert lost.ended["state"] == "failed" and lost.states == ["failed", "skipped"]


def test_the_shared_cann_is_upgraded_and_a_newer_one_uninstalled_before(tmp_path):
    server = Acted("kp-06", tmp_path, free=True, gone=("opt/vllm-ascend",))
    log = server.install("vllm-ascend-0.22.1rc1", cann="shared")
    assert "Uninstall CANN toolkit 9.1.0" in log.text and log.ended["state"] == "succeeded", log.text
    assert [row["version"] for row in server.facts()["cann_all"]] == ["9.0.0"]


def test_a_container_is_acted_out(tmp_path):
    server = Acted("kp-08", tmp_path, free=True)
    log = server.install(NEW, route="container")
    assert log.ended["state"] == "succeeded" and "True 1" in log.text and "docker" in log.text


def test_the_cpu_stack_is_acted_out(tmp_path):
    server = Acted("kp-06", tmp_path)
    assert server.install("cpu-0.32.0").ended["state"] == "succeeded"
    assert word(server, "cpu-0.32.0") == verdict.MATCHES


def test_what_a_job_of_another_start_has_changed_is_there_still(tmp_path):
    server = Acted("kp-13", tmp_path)
    server.install(NEW, firmware="9.0.0.0.205")
    server.start()
    assert server.facts()["driver"] == "26.0.rc1"
    kept = contents.read(server.made, server.folder)
    assert contents.present(server.made, kept) == server.member.server
    (server.folder / contents.FILE).write_text('{"driver": 7}')
    assert contents.now(server.made, server.folder).driver == "24.1.0"
    assert dataclasses.asdict(contents.read(server.made, server.folder)) == dataclasses.asdict(contents.of(server.made))


def test_an_index_that_asks_who_we_are_is_acted_out_as_any_other(tmp_path):
    options = {"index": "https://pypi.site.test/simple", "private": "yes"}
    server = Acted("kp-17", tmp_path, gone=("opt/vllm-ascend",))
    made = server.plan(NEW, **options)
    assert any("deployments.agent.indexed" in step.argv for step in made.steps)
    assert {"index_hangs", "disk_full"} <= {name for name, _title in faults.possible(made)}
    hung = server.install(NEW, fault="index_hangs", **options)
    assert "does not answer (timed out)" in hung.reason
    assert server.install(NEW, **options).ended["state"] == "succeeded" and word(server, NEW) == verdict.MATCHES
