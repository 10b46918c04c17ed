"""`python -m deployments.stacks.activate write FOLDER [--python PATH] [SET_ENV …]`, `again FOLDER` and `use FOLDER`.

`write` makes FOLDER/activate, which a shell reads to work with this stack: the files of CANN and NNAL, then the
environment: that of FOLDER or, where one that somebody else made is adopted, that of the interpreter PATH. `use` makes
`current` beside FOLDER point to it, at once and whole; the stack before stays where it is, and `before` points to it.
What came with a bundle, and is installed by then, goes.
"""

import shlex
import shutil
import sys
from pathlib import Path, PurePath

from deployments.stacks.evidence import halves
from deployments.stacks.said import FINE, ended, tried
from deployments.steps import Text

PACKAGES = "packages"  # of the vendor, out of a bundle
SHOWN = 5
TOOLS = "msmodelslim"  # an environment of its own, where the stack's own versions do not suit it


ADOPTED = "# adopted: "  # before the interpreter of an environment that somebody else made


def text(folder: PurePath, set_env: list[str], *, tools: bool, python: str = "") -> str:
    """What stands in the activate file; `tools` says whether there is an environment of TOOLS."""
    rows = [f". {shlex.quote(file)}" for file in [*set_env, *([] if python else [f"{folder}/venv/bin/activate"])]]
    if python:
        first = ":".join([f"{folder}/bin", str(PurePath(python).parent)])
        rows += [f"{ADOPTED}{python}", f'export PATH={shlex.quote(first)}:"$PATH"']
    if tools:
        rows.append(f'export PATH="$PATH":{shlex.quote(f"{folder}/{TOOLS}/bin")}')
    return "\n".join(
        [f"# Stack {folder.name}: read this file with `.` in a shell.", *rows,
         f"export ASCEND_CONSOLE_STACK={shlex.quote(folder.name)}", ""]
    )  # fmt: skip


def write(folder: Path, set_env: list[str], python: str = "") -> Text:
    """Write FOLDER/activate. What went wrong, FINE when nothing did."""
    missing = [file for file in [*set_env, python or f"{folder}/venv/bin/activate"] if not Path(file).is_file()]
    if missing:
        return not_whole(missing)
    if half := [name for part in ("venv", TOOLS) for name in halves(folder / part)]:
        return cut_off(half)
    if python:
        _call_python(folder / "bin", python)
    new = folder / ".activate.new"
    new.write_text(text(folder, set_env, tools=(folder / TOOLS).is_dir(), python=python), encoding="utf-8")
    new.replace(folder / "activate")
    return FINE


def _call_python(folder: Path, python: str) -> None:
    """Let `python` be the interpreter whatever its own name; a link would lose the environment that it is of."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".python.new"
    new.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n', encoding="utf-8")
    new.chmod(0o755)
    new.replace(folder / "python")


def again(folder: Path) -> Text:
    """Write it anew with what it reads by now: an environment of TOOLS may have come. What went wrong, or FINE."""
    file = folder / "activate"
    if not file.is_file():
        return no_file(folder)
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = [shlex.split(line)[1] for line in lines if line.startswith(". ")]
    python = next((line.removeprefix(ADOPTED) for line in lines if line.startswith(ADOPTED)), "")
    return write(folder, [row for row in rows if row != f"{folder}/venv/bin/activate"], python)


def not_whole(missing: list[str]) -> Text:
    words = ", ".join(missing)
    return Text(
        f"缺少：{words}。这个软件栈不完整，不会使用。", f"Missing: {words}. The stack is not whole, and is not used."
    )


def cut_off(names: list[str]) -> Text:
    words = ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")
    return Text(
        f"pip 安装到一半就中断了：{words}。这个软件栈不完整，不会使用。请重试作业，环境会重建。",
        f"pip was cut off amid: {words}. The stack is not whole, and is not used. Retry the job, which makes the "
        "environment anew.",
    )


def no_file(folder: PurePath) -> Text:
    return Text(
        f"{folder} 里没有 activate 文件。请先安装这个软件栈。",
        f"{folder} has no activate file. Install the stack first.",
    )


def use(folder: Path) -> Text:
    """Make `current` point to the stack. What went wrong, FINE when nothing did."""
    if not (folder / "activate").is_file():
        return no_file(folder)
    current = folder.parent / "current"
    if current.exists() and not current.is_symlink():
        return Text(f"{current} 不是链接。请把它移开，再重试。", f"{current} is no link. Move it away, then try again.")
    for fetched in ("wheels", PACKAGES):
        shutil.rmtree(folder / fetched, ignore_errors=True)
    before = str(current.readlink()) if current.is_symlink() else ""
    if before == folder.name:
        print(f"{folder.name} is in use already")
        return FINE
    if before:  # it comes first: cut off between the two, the stack in use is still the one before
        _point(folder.parent / "before", before)
    _point(current, folder.name)
    print(f"in use: {folder.name}" + (f"; before: {before}" if before else ""))
    return FINE


def _point(link: Path, name: str) -> None:
    """Make the link point to that name, at once."""
    new = link.parent / f".{link.name}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(name)
    new.replace(link)


def main(arguments: list[str]) -> int:
    if (
        len(arguments) < 2
        or arguments[0] not in ("write", "use", "again")
        or (arguments[0] != "write" and arguments[2:])
        or arguments[2:] == ["--python"]
    ):
        print("It takes: write FOLDER [--python PATH] [SET_ENV …], use FOLDER, or again FOLDER.", file=sys.stderr)
        return 2
    folder = Path(arguments[1])
    rest, python = arguments[2:], ""
    if rest[:1] == ["--python"]:
        python, rest = rest[1], rest[2:]
    acts = {"again": again, "use": use}
    act = acts.get(arguments[0], lambda one: write(one, rest, python))
    return ended(tried(lambda: act(folder)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
