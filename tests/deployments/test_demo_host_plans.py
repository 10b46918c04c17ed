"""Driver and firmware of every family in the demo fleet: first install, upgrade and downgrade against install.md."""

import pytest

from deployments.demo import fleet, systems
from deployments.stacks import actions, installed, plan
from deployments.stacks.catalogue import built_in
from deployments.stacks.options import Options
from tests.deployments.stack_facts import facts

KNOWN = built_in()


def one_of_each():
    """One server for each chip, system, driver and firmware that the fleet has."""
    found = {}
    for one in map(fleet.server, range(120)):
        found.setdefault((one.spec.chip, one.stack.system, one.stack.driver, one.stack.firmware), one)
    return list(found.values())


def has(one, **more):
    system = systems.of(one)
    told = facts("A2", os=f"{system.name} {system.version}", kernel=system.kernel, glibc=system.glibc,
                 pci=[{"bus_id": one.chips[0].bus_id, "device": one.spec.pci.lower()}],
                 driver=one.stack.driver, firmware=one.stack.firmware,
                 firmware_range=[one.stack.accepts.strip("[]").replace(",", "–")], **more)  # fmt: skip
    return installed.read(told, one.spec.chip, KNOWN)


def changes(made):
    """[(part, what is done to it)] in order."""
    names = {"uninstall_driver": ("driver", "--uninstall"), "uninstall_firmware": ("firmware", "--uninstall")}
    return [names.get(step.key) or (step.key, next(w for w in step.argv if w in ("--full", "--upgrade")))
            for step in made.steps if step.action and step.action[0] in actions.CHANGES_HOST]  # fmt: skip


SERVERS = one_of_each()


def test_the_fleet_has_every_family():
    assert {KNOWN.family_of(one.spec.chip) for one in SERVERS} == {"A1", "A2", "A3", "310P", "A5"}


@pytest.mark.parametrize("one", SERVERS, ids=lambda one: f"{one.name}-{one.spec.chip}")
def test_each_goes_on_in_the_documented_order(one):
    there = has(one, driver_whole=True)
    family = KNOWN.families[there.family]
    bare = installed.read(facts("A2", pci=[{"bus_id": "-", "device": one.spec.pci.lower()}]), one.spec.chip, KNOWN)
    first = plan.host_only(bare, KNOWN, Options(driver="25.5.2", firmware="7.8.0.6.201"))
    assert first.mode == "first" and changes(first) == [("driver", "--full"), ("firmware", "--full")]
    if one.stack.driver is None or one.stack.firmware is None:
        return
    up = plan.host_only(there, KNOWN, Options(driver="99.0.0", firmware="99.0.0.0.1"))
    assert up.mode == "upgrade" and changes(up) == [("firmware", "--upgrade"), ("driver", "--upgrade")]
    down = plan.host_only(there, KNOWN, Options(driver="20.0.0", firmware="1.0.0.0.1"))
    assert down.mode == "downgrade" and changes(down) == [
        ("driver", "--uninstall"), ("firmware", "--uninstall"), ("driver", "--full"), ("firmware", "--full"),
    ]  # fmt: skip
    again = plan.host_only(there, KNOWN, Options())
    assert changes(again)[0] == ("firmware", "--upgrade")  # also where the pair alone is wrong
    for made in (first, up, down):
        keys = [step.key for step in made.steps]
        files = [step.package.rpartition("/")[2] for step in made.steps if step.key in ("driver", "firmware")]
        assert all(name.startswith(family.hdk or f"Ascend-hdk-{there.family}") for name in files)
        checked = [step.package for step in made.steps if step.key.startswith("check_") and step.package]
        assert checked == [s.package for s in made.steps if s.key in ("driver", "firmware")], "each is checked before"
        begins = keys.index(next(key for key in keys if key in ("driver", "firmware", "uninstall_driver")))
        assert keys.index("free") == begins - 1 and keys[-5:] == [
            "exporters", "reboot", "npus_back", "npu_smi", "check_stack",
        ]  # fmt: skip
        assert {"tools", "run_group", "run_user", "join_group"} <= set(keys[:begins])
        ran = [step for step in made.steps if step.key in ("driver", "firmware")]
        assert all(step.accepts == (0, 2) and step.says and step.reads and "--quiet" in step.argv for step in ran)


def test_a_pair_that_does_not_fit_is_put_right_by_the_firmware_alone():
    wrong = [one for one in SERVERS if has(one).is_paired is False]
    assert wrong, "the fleet has one"
    for one in wrong:
        low, _high = has(one).firmware_ranges[0]
        made = plan.host_only(has(one, driver_whole=True), KNOWN, Options(firmware=f"{low}.2.212"))
        assert made.mode == "firmware" and changes(made) == [("firmware", "--upgrade")]


def test_each_system_gets_its_own_tools():
    managers = {systems.of(one).name: plan.host_only(has(one), KNOWN, Options(driver="99.0.0")).steps[0].argv[0]
                for one in SERVERS if one.stack.driver}  # fmt: skip
    assert managers and all(argv == ("apt-get" if name == "Ubuntu" else "yum") for name, argv in managers.items())
