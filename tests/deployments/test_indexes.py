"""An index of the site's own: an authority that nobody else knows, a password that nobody sees, and bad behaviour."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from django.utils import timezone, translation

from console.environment import BadSetting, logins
from console.errors import Invalid, NotAllowed
from console.models import ApiToken, User
from deployments.agent import indexed, signing
from deployments.agent.credentials import Pair
from deployments.models import Attempt, Job, JobState, Server
from deployments.services import bundle_fetch, installs, jobs, package_sources, stacks
from deployments.stacks import bundles, frozen, indexes
from deployments.stacks.indexes import Login
from deployments.stacks.options import Options
from deployments.stacks.pip_words import MEANS
from tests.conftest import ROOT
from tests.deployments import tiny_wheels
from tests.deployments.agent_bench import KEY, AgentServer
from tests.deployments.package_index import PASSWORD, USER, Index
from tests.deployments.test_installs import cpu_facts
from tests.waiting import until

STACK = "cpu-0.32.0"
NETRC = f"machine mirror.example login {USER} password {PASSWORD}"


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path / "index", tiny_wheels.make(tmp_path / "house"))
    yield made
    made.close()


# ---------- pip, on the server ----------


class Asking:
    """pip as a step runs it, with what the console has told of the index."""

    def __init__(self, folder, index):
        self.index = index
        self.server = AgentServer(folder, "redis://127.0.0.1:1/0")
        self.cwd = self.server.config.attempts / "a1-1-00000001"
        self.cwd.mkdir()
        self.told(PASSWORD, index.ca_pem)

    def told(self, password, ca):
        told = {"logins": [["127.0.0.1", USER, password]], "ca": ca}
        self.server.config.path.with_name("indexes.json").write_text(json.dumps(told))

    def start(self, *more):
        pip = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-cache-dir",
               "--timeout", "2", "--retries", "1", "--no-deps", "--target", str(self.server.state / "site"),
               "--index-url", self.index.url, *more, "transformers"]  # fmt: skip
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PIP_CONFIG_FILE": "/dev/null",
               "ASCEND_CONFIG": str(self.server.config.path), "ASCEND_ATTEMPT": self.cwd.name}  # fmt: skip
        argv = [sys.executable, "-m", "deployments.agent.indexed", *pip]
        assert PASSWORD not in " ".join(argv)
        self.told_why = self.server.state / "reason"
        env["ASCEND_REASON"] = str(self.told_why)
        return subprocess.Popen(argv, env=env, cwd=self.cwd, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip

    def pip(self, *more):
        running = self.start(*more)
        said = running.communicate(timeout=240)[0]
        assert PASSWORD not in said and list(self.cwd.iterdir()) == []
        return running.returncode, said

    def reason(self):
        """Why, in the step's own words, as the runner reads them before it looks at what pip's words mean."""
        return json.loads(self.told_why.read_text())[1] if self.told_why.exists() else ""

    @property
    def installed(self):
        return (self.server.state / "site" / "transformers").is_dir()


@pytest.fixture
def asking(tmp_path, index):
    made = Asking(tmp_path, index)
    yield made
    made.server.close()


def test_pip_signs_in_and_trusts_the_sites_authority(asking):
    assert asking.pip()[0] == 0 and asking.installed
    assert asking.index.refused == 0 and asking.index.asked[:2] == ["/simple/pip/", "/simple/transformers/"]


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        ("hangs", "does not answer"), ("breaks", "broke off"), ("lies", "the digest"),
        ("fails", "answers HTTP 500"),
        ("password", "does not let us in as ci-reader"), ("authority", "CERTIFICATE_VERIFY"),
    ],
)  # fmt: skip
def test_an_index_that_behaves_badly_is_named_in_words_and_nothing_is_installed(asking, behave, said):
    if behave == "password":
        asking.told("wrong", asking.index.ca_pem)
    elif behave == "authority":
        asking.told(PASSWORD, "")
    else:
        asking.index.behave = behave
    code, words = asking.pip()
    assert code != 0 and not asking.installed
    meanings = [text.en for pattern, text in MEANS if re.search(pattern, words, re.IGNORECASE)]
    reason = asking.reason() or meanings[0]
    assert said in reason and "wrong" not in reason, words


def test_the_files_are_private_and_go_when_the_step_is_ended(asking):
    asking.index.hangs_from = "/simple/transformers/"
    running = asking.start("--timeout", "100")
    until(lambda: "/simple/transformers/" in asking.index.asked, 120, 0.05)
    (folder,) = asking.cwd.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "netrc": 0o600, "authorities.pem": 0o600,
    }  # fmt: skip
    os.killpg(running.pid, signal.SIGTERM)  # as the runner does it
    assert running.wait(60) != 0 and list(asking.cwd.iterdir()) == []


def test_what_a_killed_step_left_goes_with_the_next(asking):
    left = asking.cwd.parent / "a0-1-00000001" / ".indexes-999999999-x"
    left.mkdir(parents=True)
    (left / "netrc").write_text(NETRC)
    assert asking.pip()[0] == 0 and not left.exists()


def test_what_was_sealed_with_the_key_before_is_read_while_keys_change(asking):
    config = asking.server.config
    before = dataclasses.replace(config, before=Pair(key="1b" * 32, password="x"), key=KEY)
    for key in (KEY, "1b" * 32):
        assert indexed.opened(before, signing.seal(key, b"told")) == b"told"
    with pytest.raises(ValueError, match="not sealed"):
        indexed.opened(before, signing.seal("2c" * 32, b"told"))


# ---------- from the console to the server ----------


@pytest.fixture
def site(settings, index):
    settings.PACKAGE_INDEX, settings.PACKAGE_EXTRA_INDEX = index.url, ""
    settings.PACKAGE_INDEX_CA = str(index.ca)
    settings.PACKAGE_PASSWORDS = (("127.0.0.1", USER, PASSWORD), ("other.example", "u", "Anderes-9"))
    return settings


@pytest.fixture
def server(db):
    return Server.objects.create(pk=7, name="kp-7", key=KEY, facts=cpu_facts(), last_seen_at=timezone.now())


@pytest.fixture
def asks(client, server):
    def ask(attempt, key=KEY, op="indexes"):
        body = json.dumps({"op": op, "server": server.pk, "attempt": attempt})
        sent = json.dumps({"body": body, "mac": signing.sign(key, body)})
        return client.post("/join/indexes", sent, content_type="application/json", headers={"Accept-Language": "en"})

    return ask


@pytest.mark.usefixtures("valkey", "site")
def test_a_server_gets_them_sealed_while_its_job_runs_and_nobody_sees_them(client, server, asks, caplog):
    operator = User.objects.create_user("li", role="operator")
    job = jobs.queue_job(server, "install", {"stack": STACK}, by=operator)
    attempt = Attempt.objects.get(job=job)
    Attempt.objects.filter(pk=attempt.pk).update(pushed_at=timezone.now())
    steps = frozen.read(job.params["plan"])
    wrapped = [step for step in steps if "deployments.agent.indexed" in step.argv]
    assert len(wrapped) == 2 and all("install" in step.argv for step in wrapped)
    answer = asks(attempt.pk)
    assert (
        answer.status_code == 200 and answer["Cache-Control"] == "no-store" and PASSWORD.encode() not in answer.content
    )
    told = json.loads(signing.unseal(KEY, answer.content))
    assert told["logins"] == [["127.0.0.1", USER, PASSWORD]]  # not those of hosts that the plan does not call
    with pytest.raises(ValueError, match="not sealed"):
        signing.unseal("0" * 64, answer.content)
    with pytest.raises(ValueError, match="not sealed"):
        signing.unseal(KEY, answer.content[:-1] + bytes([answer.content[-1] ^ 1]))

    assert asks(attempt.pk, key="0" * 64).status_code == 403
    assert asks("a9-1-00000009").status_code == 403 and asks(attempt.pk, op="wheels").status_code == 403
    Job.objects.filter(pk=job.pk).update(state=JobState.SUCCEEDED)
    refused = asks(attempt.pk)
    assert refused.status_code == 403 and "No job that asks for packages" in refused.content.decode()

    client.force_login(operator, "django.contrib.auth.backends.ModelBackend")
    _row, token = ApiToken.make(operator, "operator")
    bearer = {"Authorization": f"Bearer {token}"}
    pages = [
        client.get(path).content.decode() for path in (f"/jobs/{job.pk}/", f"/stacks/{STACK}/plan/kp-7/", "/stacks/")
    ]
    rest = [client.get(f"/api/v1{path}", headers=bearer).content.decode()
            for path in (f"/jobs/{job.pk}", f"/servers/kp-7/stack-plan?stack={STACK}", "/package-sources")]  # fmt: skip
    for text in [*pages, *rest, job.params["plan"], caplog.text]:
        assert PASSWORD not in text and "Anderes-9" not in text
    assert USER in rest[2] and package_sources.MASK in json.loads(rest[2])["logins"][0]["password"]
    assert "Authority of the index" in rest[2] and USER in pages[2]


@pytest.mark.usefixtures("site")
def test_plans_say_so_and_need_nothing_where_the_index_is_public(server, settings):
    def private(**given):
        return installs.options_for(server, given).private

    assert private() == "yes" and private(index="https://public.example/simple") == "yes"  # the authority may be needed
    assert private(wheelhouse="/opt/wheels") == ""
    assert private(private="yes", wheelhouse="/opt/wheels") == ""  # nobody chooses it
    settings.PACKAGE_INDEX_CA = ""
    assert private() == "yes" and private(index="https://public.example/simple") == ""
    with pytest.raises(Invalid, match="unencrypted"):
        private(index="http://other.example/simple")
    found = installs.plan_of(server, stacks.find(STACK), installs.options_for(server, {}))
    assert any(step.note and "no password stands" in step.note.en for step in found.steps)


@pytest.mark.usefixtures("db")
def test_an_attempt_of_another_server_gets_nothing(server):
    with pytest.raises(NotAllowed):
        package_sources.for_attempt(server, "a1-1-00000001")


def test_the_plan_prints_every_address_that_it_calls():
    known = stacks.catalogue()
    made = stacks.plan.make(stacks.installed.read(cpu_facts(), "", known), known.stacks[STACK], known, Options())
    assert made.addresses == (
        "https://pypi.org/simple", "https://files.pythonhosted.org",
        "https://download.pytorch.org/whl/cpu", "https://download-r2.pytorch.org",
    )  # fmt: skip
    pips = [step for step in made.steps if "pip" in step.argv and "install" in step.argv]
    assert pips and all(dict(step.env)["PIP_EXTRA_INDEX_URL"] == "https://pypi.org/simple" for step in pips)


# ---------- a bundle out of such an index ----------


def test_a_bundle_is_made_from_it_with_password_and_authority(tmp_path, index, settings, monkeypatch):
    from django.core.management import call_command

    settings.PACKAGE_INDEX, settings.PACKAGE_EXTRA_INDEX, settings.PACKAGE_INDEX_CA = index.url, "", str(index.ca)
    settings.PACKAGE_PASSWORDS = (("127.0.0.1", USER, PASSWORD),)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    seen = []
    real = bundle_fetch.subprocess.Popen
    monkeypatch.setattr(bundle_fetch.subprocess, "Popen", lambda argv, **more: seen.append(argv) or real(argv, **more))
    call_command("bundle", "make", STACK, "--out", str(tmp_path / "out"))
    (made,) = (tmp_path / "out").iterdir()
    assert set(bundles.check(made)["files"]) == set(index.wheels)
    assert seen and PASSWORD not in json.dumps(seen) and PASSWORD not in (made / bundles.MANIFEST).read_text()
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == [made.name, "manifest.json", "part-001"]


@pytest.mark.parametrize(
    ("login", "behave", "said"),
    [
        ((), "well", r"does not let us in without a login \(HTTP 401\)"),
        ((Login("127.0.0.1", USER, "wrong"),), "well", "does not let us in as ci-reader"),
        ((Login("127.0.0.1", USER, PASSWORD),), "fails", "answers HTTP 500"),
        ((Login("127.0.0.1", USER, PASSWORD),), "hangs", "does not answer"),
    ],
)
def test_an_index_is_tried_before_a_bundle_is_begun(index, login, behave, said):
    index.behave = behave
    problem = indexes.unheard(index.url, login, str(index.ca), timeout_s=1.0)
    assert re.search(said, problem) and PASSWORD not in problem and "wrong" not in problem
    index.behave = "well"
    assert indexes.unheard(index.url, (Login("127.0.0.1", USER, PASSWORD),), str(index.ca)) == ""
    assert "does not answer" in indexes.unheard(index.url, login, "")  # whom nobody trusts


# ---------- the settings ----------


def test_logins_are_read_from_a_variable_or_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("PACKAGE_PASSWORDS", NETRC)
    assert logins("PACKAGE_PASSWORDS", most=5) == (("mirror.example", USER, PASSWORD),)
    monkeypatch.setenv("PACKAGE_PASSWORDS", "")
    (tmp_path / "netrc").write_text(f"{NETRC}\n{NETRC.replace('mirror', 'second')}\n")
    monkeypatch.setenv("PACKAGE_PASSWORDS_FILE", str(tmp_path / "netrc"))
    assert [one[0] for one in logins("PACKAGE_PASSWORDS", most=5)] == ["mirror.example", "second.example"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machine mirror.example login u", "not of the form"), (f"{NETRC} {NETRC}", "1 at most"),
        ("machine https://x.example login u password Geheim7", "names no host"),
        ("machine x.example login u password Geheim7\"x", "holds a quote"),
        ("machine x.example login u password Geheim7ü", "not ASCII"), ("x.example:u:Geheim7", "not of the form"),
    ],
)  # fmt: skip
def test_bad_logins_stop_the_start_without_being_repeated(monkeypatch, text, said):
    monkeypatch.setenv("PACKAGE_PASSWORDS", text)
    with pytest.raises(BadSetting, match=said) as stopped:
        logins("PACKAGE_PASSWORDS", most=1)
    assert "Geheim7" not in str(stopped.value)
