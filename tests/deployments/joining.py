"""Another host on this machine: a folder and an account of its own, where the pasted command runs."""

import contextlib
import html
import http.cookiejar
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

NOBODY = 65534
OLD_PYTHON = Path.home() / ".pyenv/versions/3.10.13"  # a second one, that root alone may reach
PATHS = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class Browser:
    """An administrator at the pages of a real console."""

    def __init__(self, whole):
        self.url = whole.url
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        by_tls = urllib.request.HTTPSHandler(context=whole.trust())
        self.opener = urllib.request.build_opener(jar, by_tls, urllib.request.ProxyHandler({}))
        self.send("/login/", username="admin", password=whole.password)

    def get(self, path, **headers):
        with self.opener.open(urllib.request.Request(self.url + path, headers=headers), timeout=10) as answer:
            return answer.read().decode()

    def send(self, path, **fields):
        """Fill in the form at `path`; returns where it leads and that page."""
        fields["csrfmiddlewaretoken"] = re.search(r'csrfmiddlewaretoken" value="([^"]+)', self.get(path)).group(1)
        data = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(self.url + path, data, {"Referer": self.url + path})
        with self.opener.open(request, timeout=20) as answer:
            return urllib.parse.urlsplit(answer.url).path, answer.read().decode()

    def command(self, name, **fields):
        """(the page's path, the first command on it)"""
        path, page = self.send("/servers/join/", name=name, **fields)
        return path, html.unescape(re.search(r'<pre class="command"[^>]*>(.*?)</pre>', page, re.S).group(1))

    def words(self, path):
        """The live steps as text."""
        return " ".join(re.sub(r"<[^>]+>", " ", self.get(path, **{"X-Part": "1"})).split())


class Host:
    """`run` runs a shell command there; as root it runs as another account, in `prefix` before it where asked."""

    def __init__(self, *, before=(), root=False):
        self.folder = Path(tempfile.mkdtemp(prefix="host-"))
        self.folder.chmod(0o777)
        self.agent = self.folder / "agent"
        unprivileged = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        self.before = [*before, *(unprivileged if os.geteuid() == 0 and not root else [])]
        self.env = {"PATH": PATHS, "HOME": str(self.folder), "PREFIX": str(self.agent), "LANG": "C"}

    def run(self, command, **env):
        words = [*self.before, "sh", "-c", command]
        env = {**self.env, **env}
        return subprocess.run(words, env=env, cwd=self.folder, capture_output=True, text=True, timeout=120)

    def ctl(self, words):
        return self.run(f"{self.agent}/bin/ascend-console {words}")

    def pids(self):
        """Every living process that names this host's folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if str(self.folder) in line:
                        found[int(entry.name)] = line
        return found

    def all_pids(self):
        """Also those that work in the folder or were given it: vLLM's engine core overwrites its words by a title."""
        found, within = set(self.pids()), f"{self.folder}/"
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if str((entry / "cwd").readlink()).startswith(within.rstrip("/")):
                        found.add(int(entry.name))
                with contextlib.suppress(OSError):
                    if within.encode() in (entry / "environ").read_bytes():
                        found.add(int(entry.name))
        return found

    def close(self):
        for _try in range(3):
            for pid in sorted(self.all_pids()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)
