"""What the agent's programs inherit, what the system forbids them, and the file of the NPUs' ports."""

import pytest

from deployments import kinds
from deployments.kinds import hccn_note
from deployments.kinds.check_probes import hccn, limits, ports, set_env, surroundings
from deployments.kinds.check_probes.host import Trouble
from tests.deployments.check_bench import FileHost

ASCEND = "/usr/local/Ascend"


@pytest.fixture
def server(tmp_path):
    return lambda files=(), tools=(), env=(): FileHost(tmp_path, files, tools, env)


def toolkit(folder, version):
    text = f"package_name=Ascend-cann-toolkit\nversion={version}\n"
    return {f"{ASCEND}/{folder}/aarch64-linux/ascend_toolkit_install.info": text}


# ---------- set_env.sh ----------


def test_an_environment_without_cann_is_well(server):
    assert set_env.of_environment(server()).verdict == "ok"


def test_two_versions_of_cann_in_one_environment_fail(server):
    files = {**toolkit("cann-9.1.0", "9.1.0"), **toolkit("ascend-toolkit/8.2.RC1", "8.2.RC1")}
    path = f"{ASCEND}/cann-9.1.0/lib64:{ASCEND}/ascend-toolkit/8.2.RC1/lib64"
    found = set_env.of_environment(server(files, env={"LD_LIBRARY_PATH": path}))
    assert (found.verdict, found.found) == ("failed", "8.2.RC1, 9.1.0")


def test_the_same_one_twice_is_a_warning(server):
    path = f"{ASCEND}/cann-9.1.0/lib64"
    host = server(toolkit("cann-9.1.0", "9.1.0"), env={"LD_LIBRARY_PATH": f"{path}:{path}"})
    assert set_env.of_environment(host).verdict == "warning"


def test_one_that_is_not_installed_any_more_fails(server):
    host = server(toolkit("cann-9.1.0", "9.1.0"), env={"ASCEND_TOOLKIT_HOME": f"{ASCEND}/ascend-toolkit/latest"})
    found = set_env.of_environment(host)
    assert (found.verdict, found.wanted) == ("failed", "9.1.0")


@pytest.mark.parametrize(
    ("lines", "verdicts"),
    [
        ("", []),
        (f"source {ASCEND}/cann-9.1.0/set_env.sh\n. {ASCEND}/nnal/atb/set_env.sh\n", ["ok"]),
        (f"source {ASCEND}/cann-9.1.0/set_env.sh\n" * 2, ["warning"]),
        (f". {ASCEND}/cann-9.1.0/set_env.sh\n. {ASCEND}/cann-8.5.1/set_env.sh\n", ["failed"]),
        (f"source {ASCEND}/cann-7.0.0/set_env.sh\n", ["warning"]),
        (f"# source {ASCEND}/cann-7.0.0/set_env.sh\n", []),
    ],
)
def test_start_up_files_of_shells_are_read(server, lines, verdicts):
    files = {**toolkit("cann-9.1.0", "9.1.0"), **toolkit("cann-8.5.1", "8.5.1"), "/home/ops/.bashrc": lines}
    files |= {f"{ASCEND}/{part}/set_env.sh": "" for part in ("cann-9.1.0", "cann-8.5.1", "nnal/atb")}
    found = set_env.of_files(server(files, env={"HOME": "/home/ops"}))
    assert [one.verdict for one in found] == verdicts


def test_a_rank_table_that_is_not_there_fails(server):
    host = server({"/etc/profile.d/npu.sh": 'export RANK_TABLE_FILE="/data/ranks.json"\n'})
    assert [one.verdict for one in surroundings.rank_table(host)] == ["failed"]
    host.write("/data/ranks.json", "{}")
    assert [one.verdict for one in surroundings.rank_table(host)] == ["ok"]


# ---------- what is inherited and forbidden ----------


@pytest.mark.parametrize(
    ("env", "verdict"),
    [
        ({}, "ok"),
        ({"http_proxy": "http://proxy.example:3128"}, "warning"),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "localhost"}, "warning"),
        ({"http_proxy": "http://proxy.example:3128", "no_proxy": "127.0.0.1, LOCALHOST"}, "ok"),
        ({"http_proxy": "http://proxy.example:3128", "no_proxy": "*"}, "ok"),
        ({"http_proxy": "http://proxy.example:3128", "no_proxy": "localhost,127.0.0.0/8"}, "ok"),
    ],
)
def test_a_proxy_must_spare_loopback(server, env, verdict):
    assert surroundings.proxy(server(env=env)).verdict == verdict


@pytest.mark.parametrize("address", ["http://ops:hunter2@{}", "http://ops:a@hunter2@{}", "ops:hunter2@{}"])
def test_the_password_of_a_proxy_is_not_told(server, address):
    found = surroundings.proxy(server(env={"http_proxy": address.format("proxy.example:3128")}))
    assert "hunter2" not in found.found and "proxy.example" in found.found


@pytest.mark.parametrize(
    ("enforce", "config", "verdict"),
    [(None, "", "ok"), ("0", "", "ok"), ("1", "", "warning"), ("0", "SELINUX=enforcing\n", "warning")],
)
def test_selinux_now_and_after_a_restart(server, enforce, config, verdict):
    files = {"/etc/selinux/config": config} | ({"/sys/fs/selinux/enforce": enforce} if enforce else {})
    assert surroundings.selinux(server(files)).verdict == verdict


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ((3, "inactive\n" * 4), "ok"),
        ((0, "active\ninactive\ninactive\ninactive\n"), "warning"),
        ((1, "System has not been booted with systemd\n"), "unknown"),
        (None, "unknown"),
    ],
)
def test_firewalls_are_asked_of_systemd(server, said, verdict):
    assert surroundings.firewall(server(tools={"systemctl": said} if said else {})).verdict == verdict


def test_an_ufw_that_is_switched_off_filters_nothing(server):
    tools = {"systemctl": (0, "inactive\nactive\ninactive\ninactive\n")}
    assert surroundings.firewall(server({"/etc/ufw/ufw.conf": "ENABLED=no\n"}, tools)).verdict == "ok"


@pytest.mark.parametrize(
    ("mounts", "verdict", "word"),
    [
        ("/dev/sda / ext4 rw 0 0\n", "ok", ""),
        ("/dev/sda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw,noexec 0 0\n", "failed", "/tmp"),
        ("/dev/sda / ext4 rw,noexec 0 0\ntmpfs /tmp tmpfs rw 0 0\n", "failed", "/opt/ascend-console/stacks"),
        ("/dev/sda / ext4 rw 0 0\ntmpfs /tmpfiles tmpfs noexec 0 0\n", "ok", ""),
        ("", "unknown", ""),
    ],
)
def test_folders_to_run_from_lie_on_the_longest_mount(server, mounts, verdict, word):
    found = surroundings.noexec(server({"/proc/mounts": mounts}))
    assert found.verdict == verdict and word in found.found


@pytest.mark.parametrize(
    ("mask", "verdict"),
    [("0022", "ok"), ("0027", "ok"), ("0077", "warning"), ("0000", "warning"), ("0700", "failed"), ("", "unknown")],
)
def test_a_umask_is_neither_loose_nor_tight(server, mask, verdict):
    assert surroundings.umask(server({"/proc/self/status": f"Name:\tx\nUmask:\t{mask}\n"})).verdict == verdict


@pytest.mark.parametrize(
    ("hosts", "tools", "verdict"),
    [
        ("192.0.2.7 kp-01\n", {}, "ok"),
        ("127.0.1.1 kp-01\n", {}, "warning"),
        ("# 192.0.2.7 kp-01\n", {}, "warning"),
        ("", {"getent hosts kp-01": (0, "192.0.2.7 kp-01\n")}, "ok"),
        ("", {"getent hosts kp-01": (2, "")}, "warning"),
    ],
)
def test_the_name_of_the_host_has_an_address_that_others_reach(server, hosts, tools, verdict):
    found = surroundings.host_name(server({"/etc/hostname": "kp-01\n", "/etc/hosts": hosts}, tools))
    assert found.verdict == verdict


@pytest.mark.parametrize(("most", "verdict"), [("4096", "warning"), ("unlimited", "ok"), ("1545000", "ok")])
def test_processes_and_threads_have_room(server, most, verdict):
    host = server({"/proc/self/limits": f"Max processes             {most}   {most}   processes\n"})
    assert limits.processes(host).verdict == verdict


# ---------- ports ----------


def row(port, uid=0, inode=77, state="0A"):
    return (
        f"   0: {'0' * 8}:{port:04X} {'0' * 8}:0000 {state} 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1\n"
    )


def test_who_holds_a_port_is_named(server, tmp_path):
    host = server({"/proc/net/tcp": "head\n" + row(60001, uid=1000), "/proc/312/comm": "python3\n"})
    host.write("/etc/passwd", "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n")
    (tmp_path / "proc/312/fd").mkdir()
    (tmp_path / "proc/312/fd/5").symlink_to("socket:[77]")
    found = ports.ports(host)
    assert (found.verdict, found.found) == ("warning", "60001 (pid 312 python3, uid alice)")


def test_the_holder_of_another_account_is_told_by_its_user(server):
    host = server({"/proc/net/tcp": "head\n" + row(16666, uid=1001)})
    assert ports.ports(host).found == "16666 (uid 1001)"


def test_without_the_kernels_table_ports_are_not_known(server):
    with pytest.raises(Trouble):
        ports.ports(server())


# ---------- hccn.conf ----------

CONF = "address_0=198.18.0.10\nnetmask_0=255.255.0.0\naddress_1=198.18.0.11\n"


@pytest.fixture
def with_ports(server, tmp_path):
    host = server({"/etc/hccn.conf": CONF})
    host.state = tmp_path / "state"
    host.state.mkdir()
    return host


def only(findings):
    (found,) = findings
    return found


def test_hccn_conf_is_noted_at_first_and_compared_afterwards(with_ports):
    assert only(hccn.conf(with_ports)).verdict == "unknown"
    assert only(hccn.conf(with_ports)).verdict == "ok"
    with_ports.write("/etc/hccn.conf", CONF.replace("198.18.0.11", "198.18.9.9"))
    changed = only(hccn.conf(with_ports))
    assert (changed.verdict, changed.found) == ("warning", "address_1 198.18.0.11 → 198.18.9.9")
    assert changed.job == {"kind": "hccn_note", "params": {}}
    assert only(hccn.conf(with_ports)).verdict == "warning"  # it stays until somebody accepts it
    assert hccn.note(with_ports).found == "address_1 198.18.0.11 → 198.18.9.9"
    assert only(hccn.conf(with_ports)).verdict == "ok"


def test_an_address_that_two_ports_have_fails(with_ports):
    with_ports.write("/etc/hccn.conf", CONF.replace("198.18.0.11", "198.18.0.10"))
    assert only(hccn.conf(with_ports)).verdict == "failed"


def test_a_note_that_is_broken_counts_as_none(with_ports):
    hccn.conf(with_ports)
    (with_ports.state / hccn.KEPT).write_text("[1, 2")
    assert only(hccn.conf(with_ports)).verdict == "unknown"


def test_taking_the_file_as_it_is_is_a_job_of_one_step():
    (step,) = hccn_note.steps(hccn_note.Params())
    assert step.argv[1:] == ["-m", "deployments.kinds.check_probes.hccn"] and "hccn_note" in kinds.offered()


def test_by_hand_nothing_is_noted(with_ports):
    with_ports.state = None
    assert hccn.note(with_ports).verdict == "failed"
    assert only(hccn.conf(with_ports)).verdict == "unknown"


def test_a_server_without_ports_has_no_such_item(server):
    assert hccn.conf(server()) == []
