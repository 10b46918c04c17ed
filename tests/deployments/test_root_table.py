"""The table of the root helper, its sudoers file, the unit beside it, and who owns what root runs."""

import ast
import os
import sys
from pathlib import Path

import pytest

from deployments.agent import as_root, install, root_helper, root_install
from deployments.stacks import actions

ATTEMPT = "a42-1-0f3c5a7e"


def test_it_takes_named_actions_with_arguments_of_a_fixed_form_and_nothing_else(monkeypatch):
    monkeypatch.setattr(root_helper, "is_program", lambda path: True)
    assert root_helper.choose(["reboot", ATTEMPT]) == ["/usr/sbin/shutdown", "-r", "now"]
    for words in (
        [], ["reboot"], ["reboot", ATTEMPT, "now"], ["reboot", "-f"], ["reboot", f"{ATTEMPT}\n"],
        ["reboot", "a1-1-0f3c5a7e;id"], ["reboot", "../../x"], ["REBOOT", ATTEMPT], ["sh", "-c", "id"], ["/bin/sh"],
        ["", ATTEMPT], ["leave", ATTEMPT], ["leave", "/opt"], ["leave", "--now"],
    ):  # fmt: skip
        assert isinstance(root_helper.choose(words), str), words


def test_root_does_what_the_plan_shows_and_knows_no_other_action(monkeypatch):
    monkeypatch.setattr(root_helper, "is_program", lambda path: True)
    words = {
        actions.FILE: "Ascend-x_1.run",
        actions.DIGEST: "ab" * 32,
        actions.KERNEL: "6.8.0-1",
        r"\{attempt\}": "{attempt}",
    }
    for name, action in actions.ACTIONS.items():
        given = [words[form] for form in action.forms]
        shown = list(actions.command(name, *given))
        asked = [ATTEMPT if word == "{attempt}" else word for word in given]
        run = root_helper.choose([name, *asked])
        assert isinstance(run, list), (name, run)
        if name == "start-exporters":  # which of them, only the server knows
            continue
        at = {"{package}": f"{actions.PACKAGES}/{given[0]}" if given else "", "{caller}": "$SUDO_USER"}
        run = [run[0].rpartition("/")[2], *(at.get(word, word) for word in run[1:])]
        assert run == shown, name
    inside = {"leave", "npu-holders", "npu-reset", "stop-exporters"}  # no part of a plan
    inside |= {"engine-unit", "engine-start", "engine-tidy", "engine-remove"}
    inside |= {f"support-{name}" for name in ("device", "dmesg", "hccn", "plog", "seclog")}  # read for a bundle
    assert set(root_helper.ACTIONS) - set(actions.ACTIONS) == inside
    assert set(root_helper.HOST) == set(actions.CHANGES_HOST)
    assert actions.PACKAGES == root_helper.PACKAGES


def test_it_runs_a_program_only_where_root_alone_decides_what_that_is(tmp_path, monkeypatch):
    program = tmp_path / "shutdown"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o757)
    assert not root_helper.is_program(str(program))
    assert not root_helper.is_program(str(tmp_path / "none"))
    assert not root_helper.is_program("/etc/passwd")
    assert root_helper.is_program("/bin/sh")
    monkeypatch.setattr(root_helper, "ACTIONS", {"reboot": ([], [[str(program)], ["/nowhere"]])})
    assert root_helper.choose(["reboot"]) == []


def test_an_old_python_reads_it_and_it_needs_no_file_but_itself():
    tree = ast.parse(as_root.SOURCE.read_text(), feature_version=(3, 6))
    imported = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    assert set(imported) <= set(sys.stdlib_module_names)
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_the_sudoers_file_allows_one_program_to_one_account():
    lines = root_install.sudoers("ascend-console", "/opt/ascend-console/bin/root-helper").splitlines()
    rules = [line for line in lines if not line.startswith(("#", "Defaults!"))]
    assert rules == ["ascend-console ALL=(root) NOPASSWD: /opt/ascend-console/bin/root-helper"]
    assert "env_reset" in lines[1] and "!setenv" in lines[1]


def test_the_unit_leaves_runners_alone_and_lets_sudo_work_only_where_there_is_a_helper():
    place = install.Install(Path("/opt/ascend-console"), "https://c", "", 7, "ascend-console", systemd=True)
    hardened, with_helper = (
        install.unit(place),
        install.unit(
            install.Install(
                Path("/opt/ascend-console"), "https://c", "", 7, "ascend-console", systemd=True, root_helper=True
            )
        ),
    )
    for text in (hardened, with_helper):
        assert "\nKillMode=process\n" in text and "\nOOMPolicy=continue\n" in text and "\nUser=ascend-console\n" in text
        assert "\n\n[Install]\n" in text
    # Each of these makes a unit of another user unable to become root.
    for name in (
        "NoNewPrivileges",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "RestrictSUIDSGID",
        "LockPersonality",
    ):
        assert f"\n{name}=yes\n" in hardened and name not in with_helper
    assert "ProtectSystem" not in with_helper


def test_a_folder_of_somebody_else_is_found_on_the_whole_way(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files away")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    own = [one for one in (tmp_path, *tmp_path.parents) if not root_install._is_roots(one)]
    assert root_install.owned_by_root(inner / "file") is (not own)
    (tmp_path / "a").chmod(0o777)
    assert not root_install.owned_by_root(inner / "file")
    (tmp_path / "a").chmod(0o755)
    os.chown(inner, 65534, 65534)
    assert not root_install.owned_by_root(inner / "file")
    (tmp_path / "link").symlink_to(inner / "file")
    assert not root_install.owned_by_root(tmp_path / "link")
