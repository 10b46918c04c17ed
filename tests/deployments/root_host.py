"""A host on which root's part is real: the root helper as joining installs it, an account of its own, Debian's sudo,
and, as files of the host alone, /usr/local/Ascend, the packages of the vendor and /dev/davinci0.

Packages, npu-smi, apt-get and systemctl are small scripts that note in /var/log/calls how they were called.
"""

import hashlib
import json
import shlex
import subprocess
from pathlib import Path

from deployments.agent import root_install
from deployments.stacks import actions
from tests.deployments.agent_bench import KEY, PROGRAM
from tests.deployments.ssh_host import SshHost

ACCOUNT, PREFIX, STATE = "asc", "/opt/ascend-console", "/opt/ascend-console/state"
OVERLAID = ("/usr/bin", "/usr/sbin", "/usr/local", "/var/lib", "/var/log")
NPU_SMI = Path(__file__).parents[1] / "fixtures/npu_smi/info_a2_no_process_table_910b2_24.1.2.txt"

PACKAGE = r"""#!/bin/bash
# A package of the vendor: --check, and what installs it.
for word; do
    case $word in --check) echo "Verifying archive integrity...  100%   SHA256 checksums are OK. All good."; exit;; esac
done
echo "PART $* $(id -u) $(umask) ${TOOLKIT:-}" >>/var/log/calls
echo "$0 $TMPDIR" >>/var/log/places
TROUBLE
mkdir -p /usr/local/Ascend/PART/script
printf 'Version=VERSION\ncompatible_version_fw=[7.0.0,7.9.99]\n' >/usr/local/Ascend/PART/version.info
printf '#!/bin/bash\necho "PART uninstalled" >>/var/log/calls\nrm -r /usr/local/Ascend/PART\n' \
    >/usr/local/Ascend/PART/script/uninstall.sh
MORE
echo "SAYS"
exit CODE
"""

ASKS = """#!/bin/bash
case "$*" in "set -t reset"*)
    echo "Are you sure you want to continue resetting?(Y/N)"
    read -r answer && [ "$answer" = Y ] || exit 1
    echo "npu-smi $* $(id -u)" >>/var/log/calls
    echo "        Status                         : OK"
    echo "        Message                        : Reset card successfully."
    exit;;
esac
"""


class RootHost:
    """`sh` runs a line there as root; `job` runs the steps of a plan as the agent's account."""

    def __init__(self, folder: Path, name: str = "kp-root") -> None:
        self.host = SshHost(folder, name)
        self.sh = self.host.sh
        self.jobs = 0
        self.digests: dict[str, str] = {}
        for n, path in enumerate(OVERLAID):
            self.sh(f"mkdir -p /run/o{n} && mount -t tmpfs none /run/o{n} && mkdir /run/o{n}/u /run/o{n}/w")
            self.sh(f"mount -t overlay overlay -o lowerdir={path},upperdir=/run/o{n}/u,workdir=/run/o{n}/w {path}")
        self.sh("rm -rf /usr/local/Ascend")
        self._devices()
        self._account()
        for program in ("/usr/bin/apt-get", "/usr/bin/systemctl"):
            name = program.rpartition("/")[2]
            self.put(program, f'#!/bin/sh\necho "{name} $* $(id -u) $DEBIAN_FRONTEND" >>/var/log/calls\n', 0o755)
        self.put("/usr/bin/npu-smi", ASKS + f"cat <<'END'\n{NPU_SMI.read_text()}\nEND\n", 0o755)
        self.sh("touch /var/log/calls /var/log/places && chmod 666 /var/log/calls /var/log/places")

    def _devices(self) -> None:
        """A /dev of its own, with the few nodes that programs need."""
        self.sh("mkdir -p /run/dev && mount -t tmpfs -o mode=755 none /run/dev && mkdir /run/dev/pts /run/dev/shm")
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            self.sh(f"touch /run/dev/{name} && mount --bind /dev/{name} /run/dev/{name}")
        self.sh("ln -s /proc/self/fd /run/dev/fd && mount --move /run/dev /dev")
        self.sh("touch /dev/davinci0 /dev/davinci_manager && chmod 666 /dev/davinci0")

    def _account(self) -> None:
        self.sh(f"useradd --system --no-create-home --shell /bin/sh {ACCOUNT}")
        self.sh(f"mkdir -p {PREFIX}/bin {PREFIX}/etc {STATE}/attempts {actions.PACKAGES}")
        self.put(f"{PREFIX}/bin/root-helper", root_install.text("/usr/bin/python3"), 0o755)
        self.put("/etc/sudoers.d/ascend-console", root_install.sudoers(ACCOUNT, f"{PREFIX}/bin/root-helper"), 0o440)
        config = {"server_id": 7, "name": "kp-root", "redis_url": "redis://127.0.0.1:1/0", "prefix": "h:7", "key": KEY,
                  "state_dir": STATE}  # fmt: skip
        self.put(f"{PREFIX}/etc/config.json", json.dumps(config), 0o644)
        root = PROGRAM.parents[2]
        for name in ("deployments", "monitoring", "tests/deployments"):
            files = ("tar", "-C", str(root), "--exclude=__pycache__", "-c", name)
            made = subprocess.run(files, check=True, capture_output=True).stdout
            self.bytes(f"/tmp/{name.replace('/', '-')}.tar", made)
            self.sh(f"mkdir -p {PREFIX}/code && tar -C {PREFIX}/code -xf /tmp/{name.replace('/', '-')}.tar")
        self.sh(f"echo 1 >/run/boot && chown -R {ACCOUNT} {STATE}")

    def put(self, path: str, text: str, mode: int = 0o644) -> None:
        self.bytes(path, text.encode())
        self.sh(f"chmod {mode:o} {path}")

    def bytes(self, path: str, data: bytes) -> None:
        """Write a file there; through the namespace, since its folders are seen by nobody else."""
        argv = ["nsenter", "-t", str(self.init), "-m", "sh", "-c", f"cat >{shlex.quote(path)}"]
        subprocess.run(argv, input=data, check=True)

    @property
    def init(self) -> int:
        """The first process of the host's namespaces."""
        children = Path(f"/proc/{self.host.process.pid}/task/{self.host.process.pid}/children").read_text()
        return int(children.split()[0])

    def package(
        self, path: str, part: str, version: str, *, says: str, code: int = 2, trouble: str = "", more: str = ""
    ):
        """Put a package of the vendor into root's folder, and note its digest."""
        text = PACKAGE
        for word, value in {"PART": part, "VERSION": version, "SAYS": says, "CODE": str(code), "TROUBLE": trouble,
                            "MORE": more}.items():  # fmt: skip
            text = text.replace(word, value)
        self.put(path, text, 0o555)
        self.digests[path.rpartition("/")[2]] = hashlib.sha256(text.encode()).hexdigest()

    def start(self, plan: str) -> str:
        """Claim a job that runs these steps, as the worker would; the attempt."""
        return self.claim("install", stack="vllm-ascend-0.23.0", plan=plan)

    def claim(self, kind: str, **params) -> str:
        self.jobs += 1
        attempt = f"a{self.jobs}-1-{self.jobs:08x}"
        spec = {"op": "run", "attempt": attempt, "job": self.jobs, "kind": kind, "server": 7, "not_after": 1 << 40,
                "params": params}  # fmt: skip
        folder = f"{STATE}/attempts/{attempt}"
        self.sh(f"mkdir {folder}")
        self.put(f"{folder}/spec.json", json.dumps(spec))
        self.sh(f"chown -R {ACCOUNT} {folder}")
        return attempt

    def command(self, attempt: str) -> str:
        """What runs its runner as the account."""
        runner = f"/usr/bin/python3 {PREFIX}/code/tests/deployments/agent_program.py runner {STATE}/attempts/{attempt}"
        env = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin ASCEND_BOOT_ID_FILE=/run/boot TEST_TELL_S=0"
        account = f"setpriv --reuid {ACCOUNT} --regid {ACCOUNT} --init-groups"
        return f"{account} env -i {env} {runner} --config {PREFIX}/etc/config.json"

    def run(self, attempt: str) -> None:
        self.sh(f"cd / && setsid --wait {self.command(attempt)}")

    def restart(self, attempt: str) -> None:
        """The server starts anew, and the job goes on."""
        self.sh("echo $(( $(cat /run/boot) + 1 )) >/run/boot")
        self.run(attempt)

    def records(self, attempt: str) -> list[tuple[str, str]]:
        lines = self.sh(f"cat {STATE}/attempts/{attempt}/lines").splitlines()
        return [tuple(line.split("\t", 2)[1:]) for line in lines]  # type: ignore[misc]

    def events(self, attempt: str, name: str) -> list[dict]:
        found = [json.loads(text) for kind, text in self.records(attempt) if kind == "v"]
        return [event for event in found if event["e"] == name]

    def ended(self, attempt: str) -> dict:
        return self.events(attempt, "ended")[-1]

    def states(self, attempt: str) -> dict[str, str]:
        """{title: how the step ended}."""
        titles = {event["n"]: event["title"][1] for event in self.events(attempt, "step")}
        return {titles[event["n"]]: event["state"] for event in self.events(attempt, "step_end")}

    def said(self, attempt: str) -> str:
        return "\n".join(text for kind, text in self.records(attempt) if kind in "oes")

    def calls(self) -> list[str]:
        return self.sh("cat /var/log/calls").splitlines()

    def helper(self, *words: str) -> tuple[int, str]:
        """The helper as the account asks it."""
        line = " ".join(map(shlex.quote, ["sudo", "-n", f"{PREFIX}/bin/root-helper", *words]))
        heard = self.sh(
            f"setpriv --reuid {ACCOUNT} --regid {ACCOUNT} --init-groups {line} </dev/null 2>&1; echo code $?"
        )
        text, _word, code = heard.rpartition("code ")
        return int(code), text

    def close(self) -> None:
        self.host.close()
