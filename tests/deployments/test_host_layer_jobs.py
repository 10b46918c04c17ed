"""Driver, firmware and the shared CANN by the kind `install`, as root: with the real root helper, the real sudo and a
real account, and packages of the vendor that are small scripts."""

import dataclasses
import json
import re

import pytest

from deployments.services import packages
from deployments.stacks import actions, frozen, installed, plan
from deployments.stacks.catalogue import built_in
from deployments.stacks.options import Options
from tests.deployments import ssh_host, stack_facts
from tests.deployments.root_host import ACCOUNT, RootHost
from tests.waiting import until

KNOWN = built_in()
STACK = KNOWN.stacks["vllm-ascend-0.23.0"]
DRIVER, FIRMWARE = "25.5.2", "7.8.0.6.201"
SAYS = {"driver": "[Driver] Driver package installed successfully!",
        "firmware": "[Firmware] Firmware package install success! Reboot needed"}  # fmt: skip


@pytest.fixture
def host(tmp_path):
    ssh_host.check_may()
    made = RootHost(tmp_path)
    yield made
    made.close()


def planned(layer="host", options=None, **told):
    """The plan of a server, of one layer alone."""
    facts = stack_facts.facts("A2", **{"os": "Ubuntu 22.04.4 LTS", "kernel": "6.8.0-1", **told})
    chosen = options or Options(driver=DRIVER, firmware=FIRMWARE)
    made = plan.make(installed.read(facts, "910B2", KNOWN), STACK, KNOWN, chosen)
    steps = [step for step in made.steps if step.layer == layer and step.key not in ("check_stack", "room", "group")]
    return dataclasses.replace(made, steps=tuple(steps))


def with_packages(host, made, **wrong):
    """A package for each step that takes one."""
    for step in made.steps:
        if step.package and not step.key.startswith(("check", "uninstall")):
            text = wrong.get(step.key, {})
            version = re.search(r"_(\d[\w.]*?)(?:_linux|\.run)", step.package)[1]
            host.package(step.package, step.key, version, **{"says": SAYS.get(step.key, "x install success"), **text})
    return made


def write(host, made, **digests):
    """As the console writes it into the job, with the digests that it knows."""
    known = {**host.digests, **digests}
    steps = tuple(packages._sealed(step, known) for step in made.steps)
    return frozen.write(dataclasses.replace(made, steps=steps))


def test_a_first_install_goes_on_as_root_waits_for_the_restart_and_ends(host):
    made = with_packages(host, planned())
    attempt = host.start(write(host, made))
    host.run(attempt)
    assert [event["by_hand"] for event in host.events(attempt, "waiting_reboot")] == [True], host.said(attempt)
    assert host.calls()[:1] == [
        "apt-get install -y make dkms gcc net-tools pciutils linux-headers-6.8.0-1 0 noninteractive"
    ]
    assert host.calls()[1:] == [
        "driver --nox11 --full --quiet --install-for-all 0 0022 ", "firmware --nox11 --full --quiet 0 0022 ",
    ]  # fmt: skip
    assert "HwHiAiUser" in host.sh(f"id {ACCOUNT}") and "HwHiAiUser:x:" in host.sh("getent passwd HwHiAiUser")
    for line in host.sh("cat /var/log/places").splitlines():  # a copy where nobody else can look, and gone
        path, folder = line.split()
        assert path.startswith("/var/lib/ascend-console-root/package/") and path.startswith(folder)
    assert "package" not in host.sh("ls -A /var/lib/ascend-console-root").split()
    host.restart(attempt)
    assert host.ended(attempt)["state"] == "succeeded", host.said(attempt)
    assert set(host.states(attempt).values()) == {"succeeded"}
    assert "runs package-driver-first" in host.sh("cat /var/log/ascend-console-root.log")


def test_an_upgrade_takes_the_firmware_first_and_a_downgrade_uninstalls_both_before(host):
    has = {"driver": "25.0.rc1.1", "firmware": "7.7.0.1.231", "firmware_range": ["7.0.0–7.9.99"], "driver_whole": True}
    made = with_packages(host, planned(**has))
    attempt = host.start(write(host, made))
    host.run(attempt)
    host.restart(attempt)
    assert host.ended(attempt)["state"] == "succeeded", host.said(attempt)
    assert [line.split(" 0 ")[0] for line in host.calls()[1:]] == [
        "firmware --nox11 --upgrade --quiet", "driver --nox11 --upgrade --quiet",
    ]  # fmt: skip
    host.sh(": >/var/log/calls")
    down = Options(driver="25.3.RC1", firmware="7.8.0.2.212")
    made = with_packages(host, planned(options=down, **{**has, "driver": DRIVER, "firmware": FIRMWARE}))
    attempt = host.start(write(host, made))
    host.run(attempt)
    host.restart(attempt)
    assert host.ended(attempt)["state"] == "succeeded", host.said(attempt)
    assert [line.split(" --")[0] for line in host.calls()[1:]] == [
        "driver uninstalled", "firmware uninstalled", "driver", "firmware",
    ]  # fmt: skip
    assert "Version=25.3.RC1" in host.sh("cat /usr/local/Ascend/driver/version.info")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"code": 1, "trouble": "echo '[ERROR]Dkms install failed, details in : x.log'; exit 1"},
         "kernel modules were not built"),
        ({"code": 1, "trouble": "echo '[ERROR]The list of missing tools: lspci,ifconfig,'; exit 1"},
         "commands that the installer lacks"),
        ({"trouble": "printf 'Do you want to try build driver after input kernel absolute path? [y/n]: '; sleep 60"},
         "It asks “Do you want to try build driver after input kernel absolute path? [y/n]:”"),
        ({"says": "bye", "code": 0}, "did not print what it prints on success"),
        ({"trouble": "rm -rf /usr/local/Ascend/driver; echo 'Driver package install success'; exit 0"},
         "does not hold “Version=25.5.2”"),
    ],
)  # fmt: skip
def test_a_driver_that_goes_wrong_fails_the_job_in_words_and_nothing_more_is_run(host, wrong, said):
    made = with_packages(host, planned(), driver=wrong)
    attempt = host.start(write(host, made))
    host.run(attempt)
    assert host.ended(attempt)["state"] == "failed" and said in host.ended(attempt)["reason"][1], host.said(attempt)
    assert not any(line.startswith("firmware") for line in host.calls())
    states = host.states(attempt)
    assert states[f"Install the firmware {FIRMWARE}"] == "skipped"
    assert states["Start the exporters that were stopped"] == "succeeded"  # also after a failure


def test_root_runs_no_package_but_the_one_that_was_planned(host):
    made = with_packages(host, planned())
    driver = next(step.package for step in made.steps if step.key == "driver")
    name = driver.rpartition("/")[2]
    right = host.digests[name]
    code, said = host.helper("package-driver-first", name, "0" * 64)
    assert code == 66 and f"its SHA-256 is {right}" in said
    for words in (("../packages/" + name, right), (driver, right), (name, right[:-1]), (name,), ("x.run", right)):
        assert host.helper("package-driver-first", *words)[0] == 2, words
    assert host.helper("package-driver-first", "Ascend-none.run", right)[0] == 66
    host.sh(f"mv {driver} /opt/other.run && ln -s /opt/other.run {driver}")
    assert host.helper("package-driver-first", name, right)[0] == 77
    host.sh(f"rm {driver} && mv /opt/other.run {driver} && chown {ACCOUNT} {driver}")
    assert host.helper("package-driver-first", name, right)[0] == 77
    host.sh(f"chown root {driver} && chmod g+w {actions.PACKAGES}")
    assert host.helper("package-driver-first", name, right)[0] == 77
    host.sh(f"chmod g-w {actions.PACKAGES} && chown {ACCOUNT} {actions.PACKAGES}")
    assert host.helper("package-driver-first", name, right)[0] == 77
    assert not host.calls()
    host.sh(f"chown root {actions.PACKAGES}")
    assert host.helper("package-driver-first", name, right)[0] == 2  # that of the vendor, which is a success
    assert len(host.calls()) == 1


def test_the_job_says_which_file_is_wrong_before_anything_is_changed(host):
    made = with_packages(host, planned())
    name = next(step.package for step in made.steps if step.key == "driver").rpartition("/")[2]
    attempt = host.start(write(host, made, **{name: "1" * 64}))
    host.run(attempt)
    assert "has another SHA-256 than the plan" in host.ended(attempt)["reason"][1]
    assert host.calls() == [host.calls()[0]] and host.calls()[0].startswith("apt-get")


def test_who_holds_an_npu_is_named_and_known_exporters_are_stopped_and_started_again(host):
    made = with_packages(host, planned())
    host.sh("useradd -m zhangwei")
    host.sh("setpriv --reuid zhangwei --regid zhangwei --clear-groups sleep 1000 3</dev/davinci0 & echo $! >/run/pid")
    pid = host.sh("cat /run/pid").strip()
    code, told = host.helper("npu-holders")
    one = json.loads(told)
    assert code == 0 and (one["pid"], one["user"], one["devices"]) == (int(pid), "zhangwei", ["davinci0"])
    attempt = host.start(write(host, made))
    host.run(attempt)
    assert f"PID {pid} (zhangwei" in host.ended(attempt)["reason"][1], host.said(attempt)
    assert "davinci0" in host.ended(attempt)["reason"][0] and len(host.calls()) == 1
    # Whoever comes between the look and the change is refused by the helper itself.
    driver = next(step.package for step in made.steps if step.key == "driver").rpartition("/")[2]
    code, said = host.helper("package-driver-first", driver, host.digests[driver])
    assert code == 75 and f"{pid} (zhangwei)" in said and len(host.calls()) == 1
    host.sh(f"kill {pid}")
    assert host.helper("npu-holders") == (0, "")


EXPORTER = """#!/bin/sh
name=${0##*/}
[ "$1" = inspect ] || echo "$name $*" >>/var/log/calls
case $1 in
    stop) kill $(cat /run/exporter);;
    start) echo started >>/run/exporter-started;;
esac
"""


BOX = "5e" * 32


@pytest.mark.parametrize(
    ("fails", "group", "program", "name"),
    [
        (False, "/system.slice/npu-exporter.service", "systemctl", "npu-exporter.service"),
        (True, "/system.slice/npu-exporter.service", "systemctl", "npu-exporter.service"),
        (True, f"/system.slice/docker-{BOX}.scope", "docker", BOX),
    ],
)
def test_an_exporter_is_started_again_also_when_the_driver_fails(host, fails, group, program, name):
    wrong = {"driver": {"trouble": "exit 1"}} if fails else {}
    made = with_packages(host, planned(), **wrong)
    host.put(f"/usr/bin/{program}", EXPORTER, 0o755)
    host.sh("cp /bin/sleep /opt/npu-exporter")
    host.sh("/opt/npu-exporter 1000 3</dev/davinci_manager & echo $! >/run/exporter")
    host.sh(f"echo 0::{group} >/run/cgroup")  # as systemd or docker would have it
    host.sh("mount --bind /run/cgroup /proc/$(cat /run/exporter)/cgroup")
    attempt = host.start(write(host, made))
    host.run(attempt)
    assert f"{program} stop {name}" in host.calls(), host.said(attempt)
    assert host.calls()[-1] == f"{program} start {name}"
    assert "driver --nox11" in "\n".join(host.calls())
    assert bool(host.events(attempt, "waiting_reboot")) is not fails
    assert host.sh("cat /var/lib/ascend-console-root/exporters.json; echo") == "[]\n"


SLOW = "for n in $(seq 40); do echo upgradePercentage:$n%; sleep .1; done"


def test_a_cancel_does_not_cut_off_a_driver_and_the_job_ends_behind_it(host):
    made = with_packages(host, planned(), driver={"trouble": SLOW})
    attempt = host.start(write(host, made))
    host.sh(f"cd / && setsid {host.command(attempt)} & true")
    folder = f"/opt/ascend-console/state/attempts/{attempt}"
    until(lambda: "upgradePercentage:3%" in host.sh(f"cat {folder}/lines 2>/dev/null || true"), 60)
    host.sh(f"touch {folder}/cancel")
    until(lambda: host.events(attempt, "ended"), 60)
    assert "upgradePercentage:40%" in host.said(attempt) and "must not be cut off" in host.said(attempt)
    assert host.ended(attempt)["state"] == "cancelled"
    states = host.states(attempt)
    assert states[f"Install the driver {DRIVER}"] == "succeeded"
    assert states["Start the exporters that were stopped"] == "succeeded"
    assert not any(line.startswith("firmware") for line in host.calls())


def test_when_its_runner_dies_a_driver_goes_on_to_its_end(host):
    made = with_packages(host, planned(), driver={"trouble": SLOW})
    attempt = host.start(write(host, made))
    host.sh(f"cd / && setsid {host.command(attempt)} & true")
    folder = f"/opt/ascend-console/state/attempts/{attempt}"
    until(lambda: "upgradePercentage:3%" in host.sh(f"cat {folder}/lines 2>/dev/null || true"), 60)
    host.sh(f'kill -9 $(python3 -c \'import json; print(json.load(open("{folder}/pid"))["pid"])\')')
    read = "cat /usr/local/Ascend/driver/version.info 2>/dev/null || true"
    assert until(lambda: "Version=25.5.2" in host.sh(read), 30)
    assert host.events(attempt, "ended") == [], "nobody was there to write its end"


def test_a_shared_cann_goes_on_as_root_with_the_toolkit_sourced_for_nnal(host):
    options = Options(cann="shared")
    paired = {"driver": DRIVER, "firmware": FIRMWARE, "firmware_range": ["7.0.0–7.9.99"]}
    made = planned("cann", options, **paired)
    home = "/usr/local/Ascend/cann"
    toolkit = (
        f"mkdir -p {home}/aarch64-linux; echo 'export TOOLKIT=sourced' >{home}/set_env.sh; "
        f"echo version=9.1.0 >{home}/aarch64-linux/ascend_toolkit_install.info"
    )
    nnal = "mkdir -p /usr/local/Ascend/nnal/atb; echo >/usr/local/Ascend/nnal/atb/set_env.sh"
    with_packages(host, made, toolkit={"more": toolkit}, nnal={"more": nnal})
    attempt = host.start(write(host, made))
    host.run(attempt)
    assert host.ended(attempt)["state"] == "succeeded", host.said(attempt)
    assert host.calls() == [
        "toolkit --full --quiet 0 0022 ", "ops --install --quiet 0 0022 ", "nnal --install --quiet 0 0022 sourced",
    ]  # fmt: skip
    # What root sources must be root's own.
    host.sh(f"chown {ACCOUNT} {home}/set_env.sh")
    name = next(step.package for step in made.steps if step.key == "nnal").rpartition("/")[2]
    assert host.helper("package-nnal-first", name, host.digests[name])[0] == 77


# ---------- reset ----------

RESET = {"npu": "0000:C1:00.0", "confirm": "kp-root", "npu_id": 4, "ring": ["0000:C1:00.0"], "places": ["4.0", "5.0"],
         "devices": "0,1"}  # fmt: skip


def test_a_reset_answers_the_question_of_the_tool_unless_one_of_the_ring_is_held(host):
    attempt = host.claim("reset", **RESET)
    host.sh("sleep 1000 3</dev/davinci0 & echo $! >/run/pid")
    host.run(attempt)
    reason = host.ended(attempt)["reason"][1]
    assert "See that nobody holds one of these NPUs" in reason and "davinci0" in reason, host.said(attempt)
    assert not host.calls() and host.helper("npu-reset", "4", "0,1")[0] == 75
    # Another NPU than those of the ring may be held.
    code, said = host.helper("npu-reset", "4", "1")
    assert code == 0 and "Reset card successfully" in said and host.calls() == ["npu-smi set -t reset -i 4 -m 1 0"]
    for words in (("4",), ("4", "x"), ("4; id", "0"), ("4", "0,")):
        assert host.helper("npu-reset", *words)[0] == 2
    host.sh("kill $(cat /run/pid); : >/var/log/calls")
    attempt = host.claim("reset", **RESET)
    host.sh("sed -i s/SETTLE_S\\ =\\ 20/SETTLE_S\\ =\\ 0/ /opt/ascend-console/code/deployments/kinds/reset.py")
    host.run(attempt)
    assert host.ended(attempt)["state"] == "succeeded", host.said(attempt)
    assert host.calls() == ["npu-smi set -t reset -i 4 -m 1 0"]
