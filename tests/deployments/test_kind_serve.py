"""The steps and locks of `serve`, `stop` and `restart`; the unit, the container and the nodes of an engine."""

import json
import re
import shutil
import subprocess

import pytest

from deployments.agent import install, root_helper
from deployments.agent.serving import put
from deployments.kinds import restart, serve, stop
from deployments.serving import asked, command, container, nodes, settings, unit
from deployments.serving.command import Place
from deployments.stacks.faults import FAULTS

NPUS = ["0000:C1:00.0", "0000:C2:00.0"]
SECRET = "c2VjcmV0LXNlYWxlZA=="


def params(kind=serve, **more):
    values = {"replica": 12, "deployment": "chat", "revision": 3, "model": "/data/models/Qwen3-8B", "port": 18000,
              "npus": NPUS, "stacks": "/opt/stacks", "sealed": SECRET,
              "settings": json.dumps({"tensor_parallel_size": 2})}  # fmt: skip
    return kind.Params(**{**values, **more})


def titles(steps):
    return [step.title.en for step in steps]


def test_serving_looks_puts_starts_waits_and_has_it_answer():
    steps = serve.steps(params())
    assert [step.argv[2].rpartition(".")[2] for step in steps] == [
        "look", "put", "start", "await_ready", "try_one", "settle",
    ]  # fmt: skip
    assert serve.locks(params()) == ["engine:12", "npu:0000:C1:00.0", "npu:0000:C2:00.0"]
    assert steps[-1].always and not any(step.needs_root for step in steps)
    assert steps[3].timeout_s == 30 * 60 + serve.MARGIN_S
    waits = serve.steps(params(settings=json.dumps({"ready_min": 90})))[3].timeout_s
    assert waits == 90 * 60 + serve.MARGIN_S


def test_what_is_sealed_goes_by_the_environment_and_into_no_command():
    for step in serve.steps(params()):
        assert SECRET not in " ".join(step.argv)
    assert serve.steps(params())[1].env["SERVE_SEALED"] == SECRET


def test_programs_read_what_the_kind_wrote():
    ask = serve.ask_of(params(rank=1, addresses=["192.0.2.1", "192.0.2.2"], ports=["dp:13400", "ray:6400"],
                              interface="eth0", route="systemd", family="910B4", idle_mb=2900))  # fmt: skip
    assert asked.read(asked.words(ask), asked.environment(ask)) == ask
    assert ask.is_follower and ask.ports == {"dp": 13400, "ray": 6400}


def test_with_systemd_root_puts_and_starts_the_unit_and_takes_it_away():
    made = params(route="systemd", model="/data/名 称/m")
    root = [step.argv for step in serve.steps(made) if step.needs_root]
    assert root == [["engine-unit", "e12", "/data"], ["engine-start", "e12"], ["engine-tidy", "e12"]]
    gone = [step for step in stop.steps(stop.Params(replica=12, route="systemd")) if step.needs_root]
    assert [step.argv for step in gone] == [["engine-remove", "e12"]] and gone[0].always
    again = [step.argv[0] for step in restart.steps(params(restart, route="systemd")) if step.needs_root]
    assert again == ["engine-unit", "engine-start", "engine-tidy"]
    for step in serve.steps(made) + stop.steps(stop.Params(replica=12, route="systemd")):
        if step.needs_root:
            forms = root_helper.ACTIONS[step.argv[0]][0]
            assert len(forms) == len(step.argv) - 1
            assert all(re.fullmatch(form, word) for form, word in zip(forms, step.argv[1:], strict=True))


def test_stopping_waits_for_requests_only_where_it_may():
    gentle = stop.steps(stop.Params(replica=12, npus=NPUS, drain_s=600))
    assert "--drain=600" in gentle[0].argv and gentle[0].timeout_s == 600 + stop.STOP_S
    assert "--drain=600" not in stop.steps(stop.Params(replica=12, npus=NPUS, drain_s=600, now=True))[0].argv
    assert stop.locks(stop.Params(replica=12, npus=NPUS, held=NPUS[:1])) == ["engine:12", "npu:0000:C1:00.0"]
    both = titles(restart.steps(params(restart)))
    assert both.index("Wait until the NPUs have their memory back") < both.index("Start the engine")


# ---------- the unit ----------


def test_root_writes_the_very_unit_that_is_shown(monkeypatch):
    assert root_helper.UNIT_TEXT == unit.TEXT and root_helper.MODEL == unit.FOLDER
    monkeypatch.setattr(root_helper, "place", lambda: "/opt/ascend-console")
    monkeypatch.setenv("SUDO_USER", "ascend-console")
    shown = unit.text("e12", "/data/m", prefix="/opt/ascend-console", account="ascend-console")
    assert root_helper.unit_text("e12", "/data/m") == shown
    for account in ("root", "", "a b", "x\nUser=root"):
        monkeypatch.setenv("SUDO_USER", account)
        with pytest.raises(root_helper.Refused):
            root_helper.unit_text("e12", "/data/m")


@pytest.mark.parametrize(
    "words",
    [
        ["engine-unit", "e12"], ["engine-unit", "e12", "/data/m", "x"], ["engine-unit", "../e12", "/data"],
        ["engine-unit", "e12\n", "/data"], ["engine-unit", "e12", "data"], ["engine-unit", "e12", "/data/../etc"],
        ["engine-unit", "e12", "/data/a b"], ["engine-unit", "e12", "/data\nExecStart=/bin/sh"],
        ["engine-unit", "e12", "/data/%h"], ["engine-unit", "e12", "/data/$HOME"], ["engine-unit", "e12", "/data/x;id"],
        ["engine-start", "e12.service"], ["engine-start", "ssh"], ["engine-remove", "e"], ["engine-tidy", "e12", "now"],
        ["engine-unit", "e12", "/data/x/.."], ["engine-unit", "e12", '/data/"x"'],
    ],
)  # fmt: skip
def test_root_takes_no_other_unit_and_no_path_that_a_unit_would_read_otherwise(words):
    assert isinstance(root_helper.choose(words), str)


def test_a_model_that_no_unit_can_name_is_named_by_a_folder_above():
    assert unit.mounted("/data/models/Qwen3-8B") == "/data/models/Qwen3-8B"
    assert unit.mounted("/data/mod els/x") == "/data" and unit.mounted("/模型/x") == "/"
    assert re.fullmatch(root_helper.MODEL, unit.mounted("/模型/x"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    file = tmp_path / unit.name("e12")
    text = unit.text("e12", "/data/models/Qwen3-8B", prefix=str(tmp_path), account="root")
    file.write_text(text)
    verify = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "e12" in line]
    assert done.returncode == 0 and not ours, done.stderr
    file.write_text(text.replace("KillMode=mixed", "KillMode=gently").replace("RestartSec=10", "RestartSek=10"))
    told = subprocess.run(verify, capture_output=True, text=True, timeout=60).stderr
    assert "RestartSek" in told and "kill mode" in told  # it does look


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A systemctl that notes what it is asked; the word in `is` is the unit's state."""
    tool = tmp_path / "systemctl"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = is-active ] && cat {tmp_path}/is\nexit 0\n')
    tool.chmod(0o755)
    (tmp_path / "is").write_text("active\n")
    (tmp_path / "units").mkdir()
    monkeypatch.setattr(root_helper, "UNITS", f"{tmp_path}/units/")
    monkeypatch.setattr(root_helper, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr(root_helper, "SYSTEMCTL", (str(tool),))
    monkeypatch.setattr(root_helper, "must_be_roots", lambda path: None)
    monkeypatch.setattr(root_helper, "is_program", lambda path: True)
    monkeypatch.setattr(root_helper, "place", lambda: "/opt/ascend-console")
    monkeypatch.setenv("SUDO_USER", "ascend-console")
    return tmp_path


def test_root_puts_starts_and_removes_the_unit_and_leaves_one_that_runs(systemd):
    file = systemd / "units" / "ascend-console-e12.service"
    assert root_helper.INSIDE["engine-unit"]("e12", "/data/m") == 0
    assert file.read_text().startswith("[Unit]\nDescription=Ascend Console engine e12\n")
    assert file.stat().st_mode & 0o777 == 0o644
    assert root_helper.INSIDE["engine-start"]("e12") == 0
    assert root_helper.INSIDE["engine-tidy"]("e12") == 0 and file.exists()
    (systemd / "is").write_text("inactive\n")
    assert root_helper.INSIDE["engine-tidy"]("e12") == 0 and not file.exists()
    assert root_helper.INSIDE["engine-remove"]("e12") == 0  # nothing is left to do
    assert (systemd / "asked").read_text().splitlines() == [
        "daemon-reload", "enable --quiet ascend-console-e12.service", "reset-failed ascend-console-e12.service",
        "restart --no-block ascend-console-e12.service", "is-active ascend-console-e12.service",
        "is-active ascend-console-e12.service", "disable --now --quiet ascend-console-e12.service",
        "reset-failed ascend-console-e12.service", "daemon-reload",
    ]  # fmt: skip


def test_root_writes_through_no_link_and_nowhere_without_systemd(systemd, monkeypatch):
    victim = systemd / "victim"
    victim.write_text("mine")
    (systemd / "units" / "ascend-console-e12.service.new").symlink_to(victim)
    with pytest.raises(root_helper.Refused, match="cannot be written"):
        root_helper.put_unit("e12", "/data/m")
    assert victim.read_text() == "mine"
    monkeypatch.setattr(root_helper, "SYSTEMD", str(systemd / "none"))
    with pytest.raises(root_helper.Refused, match="systemd does not run"):
        root_helper.start_unit("e12")


def test_an_agent_that_leaves_knows_the_units_of_its_own_engines(tmp_path, monkeypatch):
    place = install.Install(tmp_path / "own", "https://c", "", 7, "ascend-console", systemd=True)
    monkeypatch.setattr(install, "UNIT", tmp_path / "ascend-console-agent.service")
    for name, prefix in (("e12", place.prefix), ("e13", tmp_path / "other")):
        text = unit.text(name, "/data/m", prefix=str(prefix), account="ascend-console")
        (tmp_path / unit.name(name)).write_text(text)
    (tmp_path / "ascend-console-agent.service").write_text("[Unit]\n")
    assert [one.name for one in install.engine_units(place)] == ["ascend-console-e12.service"]


def test_a_helper_outside_of_an_installation_puts_no_unit(monkeypatch):
    with pytest.raises(root_helper.Refused, match="not installed by joining"):
        root_helper.place()


# ---------- containers ----------


def spec(**more):
    image = json.dumps({"image": "quay.io/a/vllm:1"})
    ask = serve.ask_of(params(route="podman", family="910B4", settings=image, **more))
    return put.spec(ask, settings.read(ask.settings), "sk-secret", {NPUS[0]: 2900})


def test_a_container_sees_its_npus_its_model_and_no_key_in_its_arguments():
    made = spec()
    assert made["argv"] == ["bash", "-c", container.IN_CONTAINER, "in-container", *container.run(made)]
    assert made["activate"] == "" and made["container"] == "ascend-console-e12"
    argv = container.run(made, [0, 3])
    assert argv[:2] == ["podman", "run"] and argv[argv.index("--name") + 1] == "ascend-console-e12"
    devices = [argv[n + 1] for n, word in enumerate(argv) if word == "--device"]
    assert devices == ["/dev/davinci0", "/dev/davinci3", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]
    assert "/data/models/Qwen3-8B:/data/models/Qwen3-8B:ro" in argv and "/usr/local/dcmi:/usr/local/dcmi:ro" in argv
    assert "sk-secret" not in " ".join(argv) and argv[argv.index("--entrypoint") - 1] == "VLLM_API_KEY"
    at = argv.index("quay.io/a/vllm:1")
    assert argv[at - 1] == "python" and argv[at + 1 : at + 3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert not any(word.startswith("ASCEND_RT_VISIBLE_DEVICES") for word in argv)
    assert container.stop("podman", "ascend-console-e12") == ["podman", "stop", "--time", "30", "ascend-console-e12"]


def test_without_npus_a_container_gets_no_devices_and_over_several_servers_the_links():
    assert "--device" not in container.run({**spec(), "npus": []}, [])
    several = container.run(spec(addresses=["192.0.2.1", "192.0.2.2"]), [0])
    assert "/etc/hccn.conf:/etc/hccn.conf:ro" in several and several[several.index("--net") + 1] == "host"


def test_the_devices_of_now_come_in_when_the_client_starts(tmp_path):
    made = spec()
    (tmp_path / "podman").write_text('#!/bin/sh\nprintf "%s\\n" "$ASCEND_RT_VISIBLE_DEVICES" "$@"\n')
    (tmp_path / "podman").chmod(0o755)
    for visible, indexes in (("3,0", [3, 0]), ("", [])):
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ASCEND_RT_VISIBLE_DEVICES": visible}
        said = subprocess.run(made["argv"], env=env, capture_output=True, text=True, timeout=20, check=True).stdout
        assert said.splitlines() == ["", *container.run(made, indexes)[1:]]


# ---------- nodes ----------

ADDRESSES = ("192.0.2.1", "192.0.2.2")


def over(rank, **more):
    made = settings.read({"nodes": 2, "tensor_parallel_size": 8, **more})
    ports = {"dp": 13400, "ray": 6400}
    return made, Place("/m", ADDRESSES[rank], 18000, 8, rank, ADDRESSES, "eth0", ports)


def test_with_data_parallel_each_node_knows_its_rank_and_only_the_first_answers():
    moe = {"data_parallel_size": 4, "tensor_parallel_size": 4, "enable_expert_parallel": True}
    first, second = nodes.argv(*over(0, **moe)), nodes.argv(*over(1, **moe))
    for words in (first, second):
        assert words[words.index("--data-parallel-address") + 1] == "192.0.2.1"
        assert words[words.index("--data-parallel-size-local") + 1] == "2"
    assert "--headless" not in first and "--port" in first and first[2] == command.MODULE
    assert second[:5] == ["python", "-m", "vllm.entrypoints.cli.main", "serve", "/m"] and "--model" not in second
    assert "--headless" in second and second[second.index("--data-parallel-start-rank") + 1] == "2"
    env = command.environment(*over(1, **moe))
    assert env["HCCL_IF_IP"] == "192.0.2.2" and env["GLOO_SOCKET_IFNAME"] == "eth0"


def test_with_ray_the_head_begins_the_cluster_and_the_others_join_it():
    first, second = nodes.argv(*over(0, backend="ray")), nodes.argv(*over(1, backend="ray"))
    assert first[:6] == ["bash", "-c", nodes.HEAD, "ray-head", "6400", "192.0.2.1"] and "python" in first
    assert second[:5] == ["bash", "-c", nodes.JOIN, "ray-join", str(nodes.JOIN_S)]
    assert second[5:9] == ["ray", "start", "--address=192.0.2.1:6400", "--node-ip-address=192.0.2.2"]
    assert command.environment(*over(0, backend="ray"))["RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"] == "1"


def test_the_shell_around_ray_ends_with_the_engine_and_takes_ray_along(tmp_path):
    begin = f'#!/bin/sh\n[ "$1" = status ] && exit 0\necho "$@" > {tmp_path}/asked\n'
    (tmp_path / "ray").write_text(begin + "while :; do sleep 0.05; done\n")
    (tmp_path / "ray").chmod(0o755)
    argv = ["bash", "-c", nodes.HEAD, "ray-head", "6400", "192.0.2.1", "sh", "-c", "sleep 0.3; exit 7"]
    done = subprocess.run(argv, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=20)
    assert done.returncode == 7
    assert "--port=6400 --node-ip-address=192.0.2.1" in (tmp_path / "asked").read_text()


def test_a_node_tries_until_the_head_is_there(tmp_path):
    (tmp_path / "join").write_text(f'#!/bin/sh\necho x >> {tmp_path}/n\n[ "$(wc -l < {tmp_path}/n)" -ge 2 ]\n')
    (tmp_path / "join").chmod(0o755)
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    argv = ["bash", "-c", nodes.JOIN, "ray-join", "20"]
    done = subprocess.run([*argv, str(tmp_path / "join")], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=20)
    assert done.returncode == 0 and (tmp_path / "n").read_text() == "x\nx\n"


def test_nodes_that_do_not_go_together_are_named():
    wanted = settings.read({"nodes": 2, "data_parallel_size": 3})
    two = [{"rank": 0, "address": "192.0.2.1", "npus": ["a"]}, {"rank": 1, "address": "192.0.2.1", "npus": []}]
    said = " ".join(text.en for text in nodes.problems(two, wanted))
    assert "address of its own" in said and "as many NPUs" in said and "cannot be divided" in said
    assert nodes.problems(two[:1], wanted)
    good = [{"rank": n, "address": f"192.0.2.{n + 1}", "npus": ["a"]} for n in (0, 1)]
    assert nodes.problems(good, settings.read({"nodes": 2})) == []


def test_faults_of_installs_are_others():
    from deployments.serving import faults

    assert not set(FAULTS) & set(faults.ALL)
