"""The whole way: a real console lets hosts with real sshd and sudo join, from its page, its shell, and by pasting."""

import html
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

from tests.conftest import ROOT, free_port
from tests.deployments import ssh_host
from tests.deployments.joining import Browser
from tests.deployments.ssh_host import SshHost
from tests.waiting import until
from tests.whole import Whole

OPS_PASSWORD, PASSPHRASE = "Ops-pw '$(id)' 7", "opens-the-key-5"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """kp-01, where root logs in, and kp-02, where ops does and has sudo by password; both by the key kp-01 holds."""
    ssh_host.check_may()
    made = []
    try:
        for name in ("kp-01", "kp-02"):
            made.append(SshHost(tmp_path_factory.mktemp(name), name))
        one, _two = made
        one.keys["login"] = one.key("login", passphrase=PASSPHRASE)
        one.keys["open"] = one.key("open")
        for host in made:
            host.user("ops", OPS_PASSWORD, sudo="password")
            host.user("plain", "has-no-sudo-1")
            for name in ("root", "ops", "plain"):
                host.authorize(name, one.keys["login"], one.keys["open"])
            host.sshd(22)
        yield made
    finally:
        for host in made:
            host.close()


@pytest.fixture(scope="module")
def console(tmp_path_factory, hosts):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0, bind=hosts[0].console, ALLOW_PLAINTEXT="1")
    yield whole
    whole.stop()


@pytest.fixture(scope="module")
def browser(console):
    return Browser(console)


def post(browser, page, action="", **fields):
    """Send a form of `page`; returns where it leads."""
    fields["csrfmiddlewaretoken"] = re.search(r'csrfmiddlewaretoken" value="([^"]+)', browser.get(page)).group(1)
    data = urllib.parse.urlencode(fields, doseq=True).encode()
    with browser.opener.open(browser.url + page + action, data, timeout=20) as answer:
        return urllib.parse.urlsplit(answer.url).path


def begin(browser, text):
    """Check the list, begin it; returns its page when the keys have been read."""
    given = {"text": text, "user": "root", "at_once": "5"}
    _path, page = browser.send("/servers/join/many/", **given)
    seen = re.search(r'name="seen" value="(\w+)"', page).group(1)
    path, _page = browser.send("/servers/join/many/", act="start", seen=seen, **given)
    until(lambda: "data-under-way" not in browser.get(path), 60)
    return path


def states(browser, path):
    return re.findall(r'data-state="(\w+)"', browser.get(path))


def words(browser, path):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", browser.get(path, **{"X-Part": "1"}))).split())


def leave(host):
    assert "has left" in host.sh("/opt/ascend-console/bin/ascend-console leave")


class Watch(threading.Thread):
    """Reads the arguments and environments of all processes, those of the hosts too, as long as it is open."""

    def __init__(self, secrets):
        super().__init__(daemon=True)
        self.secrets, self.found, self.rounds, self.over = secrets, [], 0, threading.Event()

    def run(self):
        while not self.over.wait(0.05):
            self.rounds += 1
            for process in Path("/proc").iterdir():
                if not process.name.isdecimal() or int(process.name) == os.getpid():
                    continue
                for name in ("cmdline", "environ"):
                    try:
                        text = (process / name).read_bytes()
                    except OSError:
                        continue
                    self.found += [(name, text[:200]) for secret in self.secrets if secret in text]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def files_with(folder, secrets):
    """The files below the console's folder that hold one of the secrets."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and (text := path.read_bytes()) and any(secret in text for secret in secrets)
    ]


def test_a_list_joins_as_root_and_with_sudo_in_under_a_minute(browser, console, hosts):
    one, two = hosts
    path = begin(
        browser, f"host,user,rack,labels,name\n{one.address},root,A1,env=prod,kp-01\n{two.address},ops,A2,,kp-02\n"
    )
    page = browser.get(path)
    for host in hosts:
        shown = re.search(r"SHA256:\S+", host.sh("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")).group(0)
        assert html.escape(shown) in page
    key = one.keys["login"].read_text()
    secrets = [OPS_PASSWORD.encode(), PASSPHRASE.encode(), key.splitlines()[2].encode()]
    given = {"private_key": key, "passphrase": PASSPHRASE, "sudo_password": OPS_PASSWORD}
    began = time.monotonic()
    with Watch(secrets) as watch:
        assert post(browser, path, "confirm", row=["2", "3"], **given) == path
        until(lambda: "data-under-way" not in browser.get(path), 150)
    assert states(browser, path) == ["joined", "joined"], words(browser, path)
    took = [float(n) for n in re.findall(r'class="number fit">(\d+) s<', browser.get(path))]
    print(f"online after {took} s, the whole list after {time.monotonic() - began:.1f} s")
    assert len(took) == 2 and max(took) < 60
    assert watch.rounds > 10 and watch.found == []
    assert files_with(console.folder, secrets) == []
    assert "This server has joined the console and is online." in words(browser, f"{path}lines/3/")
    # Its agent is not root, and works.
    assert "ascend-console" in two.sh("ps -eo user:20,args | grep [d]eployments.agent.worker")
    token = console.token()
    for name in ("kp-01", "kp-02"):
        job = console.call("/jobs", token, {"kind": "check", "server": name})
        until(lambda job=job: console.call(f"/jobs/{job['id']}", token)["state"] in ("succeeded", "failed"), 60)
    assert 'href="/servers/kp-02/"' in browser.get(path)
    again = begin(browser, f"{one.address},root,,,,kp-03")  # the same machine by another name
    assert "confirmed before" in browser.get(again)
    post(browser, again, "cancel")
    for host in hosts:
        leave(host)


def ssh_to(host, user, key):
    """OpenSSH's own client, which knows the host's key from its own file."""
    known = host.folder / "known_hosts"
    public = (host.folder / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    known.write_text(f"{host.address} {public}")
    options = [f"UserKnownHostsFile={known}", "StrictHostKeyChecking=yes", "BatchMode=yes", "IdentitiesOnly=yes"]
    return [
        "ssh",
        "-F",
        "none",
        "-i",
        str(key),
        *[word for one in options for word in ("-o", one)],
        f"{user}@{host.address}",
    ]


def test_the_pasted_command_works_over_ssh_as_root(browser, hosts):
    one, _two = hosts
    _page, command = browser.command("kp-11")
    began = time.monotonic()
    joined = subprocess.run(
        [*ssh_to(one, "root", one.keys["open"]), command], capture_output=True, text=True, timeout=120
    )
    assert joined.returncode == 0, joined.stdout + joined.stderr
    print(f"as root: online after {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 60
    assert "is online" in joined.stdout
    leave(one)


def test_the_pasted_command_asks_for_the_password_of_sudo(browser, hosts):
    one, two = hosts
    _page, command = browser.command("kp-12")
    began = time.monotonic()
    terminal = subprocess.Popen(
        [*ssh_to(two, "ops", one.keys["open"])[:-1], "-tt", f"ops@{two.address}", command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said = b""
    while b"password for ops" not in said:
        piece = os.read(terminal.stdout.fileno(), 1024)
        assert piece, said
        said += piece
    terminal.stdin.write(f"{OPS_PASSWORD}\n".encode())
    terminal.stdin.flush()
    said += terminal.stdout.read()
    assert terminal.wait(60) == 0, said
    terminal.stdin.close()
    terminal.stdout.close()
    print(f"with sudo: online after {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 60 and b"is online" in said
    leave(two)


def manage(console, *options, fed=""):
    return subprocess.run(
        [sys.executable, "manage.py", *options], cwd=ROOT, env=console.env, input=fed, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip


def test_the_shell_does_the_same(console, hosts, tmp_path):
    one, two = hosts
    listed = tmp_path / "hosts.csv"
    listed.write_text(f"主机,用户,名称,标签\n{one.address},root,kp-21,env=prod\n{two.address},ops,kp-22,\n")
    bad = tmp_path / "bad.csv"
    bad.write_text("kp 21\nkp-01\n")
    wrong = manage(console, "servers", "import", str(bad), "--ask-password", fed="x\n")
    assert wrong.returncode == 1 and "line 1: “kp 21” is neither" in wrong.stderr and "nothing was done" in wrong.stderr
    dry = manage(console, "servers", "import", str(listed), "--dry-run")
    assert dry.returncode == 0 and "2 hosts could join" in dry.stdout
    login = ["--key-file", str(one.keys["login"]), "--ask-sudo-password"]
    fed = f"{PASSPHRASE}\n{OPS_PASSWORD}\n"
    nobody = manage(console, "servers", "import", str(listed), "--ask-password", fed="\n")
    assert nobody.returncode == 1 and "0 of 2 hosts" in nobody.stdout
    for host in hosts:  # as if never seen
        manage(console, "servers", "forget-key", host.address)
    unsure = manage(console, "servers", "import", str(listed), *login, fed=fed)
    assert unsure.returncode == 1 and "--yes-host-keys" in unsure.stderr and "not confirmed" in unsure.stderr
    known = tmp_path / "known_hosts"
    known.write_text(
        "".join(f"{host.address} {(host.folder / 'etc/ssh/ssh_host_ed25519_key.pub').read_text()}" for host in hosts)
    )
    joined = manage(console, "servers", "import", str(listed), *login, "--yes-host-keys", str(known), fed=fed)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert "kp-22 | This server has joined the console and is online." in joined.stdout
    assert "2 of 2 hosts have joined." in joined.stdout and "kp-21 joined after" in joined.stdout
    there = {row["name"]: row for row in json.loads(manage(console, "servers", "list", "--json").stdout)}
    assert there["kp-21"]["state"] == "online" and there["kp-21"]["labels"] == {"env": "prod"}
    assert "key" not in there["kp-21"] and "redis_password" not in there["kp-21"]
    twice = manage(console, "servers", "import", str(listed), *login, fed=fed)
    assert twice.returncode == 1 and "already" in twice.stderr
    for host in hosts:
        leave(host)


def test_below_a_folder_a_user_without_root_joins(console, hosts):
    """At a terminal: the key is shown, somebody says yes."""
    one, two = hosts
    manage(console, "servers", "forget-key", two.address)
    terminal, theirs = os.openpty()
    listed = two.folder / "hosts.csv"
    listed.write_text(f"{two.address}\n")
    options = ["--user", "plain", "--prefix", "/home/plain/agent", "--key-file", str(one.keys["open"])]
    running = subprocess.Popen(
        [sys.executable, "manage.py", "servers", "import", str(listed), *options],
        cwd=ROOT, env=console.env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while b"[yes/no]" not in said:
        piece = os.read(running.stdout.fileno(), 1024)
        assert piece, said
        said += piece
    shown = re.search(r"SHA256:\S+", two.sh("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")).group(0)
    assert shown.encode() in said
    os.write(terminal, b"yes\n")
    said += running.stdout.read()
    assert running.wait(60) == 0 and b"1 of 1 hosts have joined" in said, said
    os.close(terminal)
    running.stdout.close()
    assert two.sh("ps -eo user:20,args | grep [d]eployments.agent.worker").split()[0] == "plain"
    two.sh("su plain -c '/home/plain/agent/bin/ascend-console leave'")


def test_the_shell_makes_a_command(console, hosts):
    one, _two = hosts
    made = manage(console, "servers", "add", "kp-31", "--rack", "A1", "--labels", "env=prod")
    assert made.returncode == 0 and made.stdout.startswith("f=$(mktemp)")
    joined = subprocess.run([*ssh_to(one, "root", one.keys["open"]), made.stdout], capture_output=True, text=True)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    leave(one)
    for name, more in (("kp 31", []), ("kp-32", ["--labels", "env"])):
        refused = manage(console, "servers", "add", name, *more)
        assert refused.returncode == 1 and "Traceback" not in refused.stderr and refused.stderr


def test_a_restarted_console_asks_for_the_credentials_again(browser, console, hosts):
    silent = socket.create_server((hosts[0].console, free_port()))
    try:
        port = silent.getsockname()[1]
        given = {"text": f"{hosts[0].console},root,{port},,,kp-41", "user": "root", "at_once": "5"}
        seen = re.search(r'name="seen" value="(\w+)"', browser.send("/servers/join/many/", **given)[1]).group(1)
        path, _page = browser.send("/servers/join/many/", act="start", seen=seen, **given)
        worker = until(lambda: process_with("join_many", path.split("/")[-2]))
        web = process_with("uvicorn", str(console.port))
        os.kill(web, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{worker}").exists(), 20)
        until(lambda: is_up(browser), 30)
        until(lambda: "keeps no credentials" in words(browser, path), 30)
        assert "Try 1 host again" in words(browser, path)
    finally:
        silent.close()


def process_with(*parts):
    """The id of a process that has each of these among its arguments."""
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if all(part.encode() in line for part in parts):
            return int(entry.name)
    return None


def is_up(browser):
    try:
        return bool(browser.get("/servers/join/many/"))
    except OSError:
        return False
