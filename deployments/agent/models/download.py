"""Steps of the jobs `download_look` and `download`: what would be fetched, and fetch it.

python -m deployments.agent.models.download [--look] --source NAME [--endpoint URL] --model NAME … FOLDER
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from deployments.agent.config import Config
from deployments.agent.models import ending, looking, secrets
from deployments.agent.models.asked import asked
from deployments.agent.models.other_server import OtherServer
from deployments.agent.models.secrets import Secrets
from deployments.agent.models.uploaded import Uploaded
from deployments.agent.pages import say
from deployments.artifacts import BadModel, digests, fetch, report, target
from deployments.artifacts.digests import Manifest
from deployments.artifacts.paths import tidy
from deployments.artifacts.progress import Progress, amount
from deployments.artifacts.sources import Broken, File, Source
from deployments.artifacts.sources.hubs import HuggingFace, ModelScope
from deployments.artifacts.sources.names import OWN, Chosen, choose
from deployments.artifacts.sources.shared_path import SharedPath
from deployments.artifacts.sources.web import Web
from deployments.artifacts.sources.web_folder import WebFolder
from deployments.steps import Text

TRIES = 3  # to list the files; fetch.py has its own
TRIES_OF_A_PEER = 60  # its job may have to wait for another first


def source_of(config: Config, options: argparse.Namespace) -> Source:
    """Raises BadModel, Stopped."""
    known = secrets.ask(config, options.pair) if options.private else Secrets({}, "", "")
    web = Web(known.tokens, known.ca)
    makers: dict[str, Callable[[], Source]] = {
        "huggingface": lambda: HuggingFace(web, options.endpoint, options.model, options.revision),
        "modelscope": lambda: ModelScope(web, options.endpoint, options.model, options.revision),
        "web": lambda: WebFolder(web, options.model),
        "path": lambda: SharedPath(Path(options.model)),
        "upload": lambda: Uploaded(config, options.model, options.endpoint),
        "server": lambda: OtherServer(options.endpoint, known.key, options.model),
    }
    if options.source not in makers:
        raise BadModel(Text(f"没有来源“{options.source}”。", f"There is no source “{options.source}”."))
    return makers[options.source]()


def listed(source: Source, options: argparse.Namespace) -> Chosen:
    """What is to be fetched. Raises BadModel, Broken."""
    tries = TRIES_OF_A_PEER if options.source == "server" else TRIES
    for attempt in range(1, tries + 1):
        try:
            files = source.files()
            break
        except Broken as error:
            if attempt == tries:
                raise
            print(f"{error}; {attempt}/{tries}", flush=True)
            fetch.pause(error.after_s, min(attempt, 4))
    return choose(files, only=options.only, leave_out=options.leave_out, pickles=options.pickles)


def differences(config: Config, folder: Path, source: Source, files: list[File]) -> list[str]:
    """Names of files that are not there as the source lists them; the digests of a folder that no job has made are
    made first. Raises OSError, BadModel."""
    sizes = {file.name: (folder / file.name).stat().st_size for file in files if (folder / file.name).is_file()}
    known = digests.known(config.state_dir, folder)
    if known is None and not any(file.size not in (None, sizes.get(file.name)) for file in files):
        progress = Progress(sum(sizes.values()))
        known = digests.make(folder, progress.add)
        digests.keep(config.state_dir, folder, known)
    rows = known.files if known else {}
    return [file.name for file in files if not _same(source, file, sizes.get(file.name), rows.get(file.name))]


def _same(source: Source, file: File, size: int | None, known: digests.Digested | None) -> bool:
    if size is None or known is None or size != known.size or file.size not in (None, size):
        return False
    return (source.sha256(file) or known.sha256) == known.sha256


def is_there(config: Config, folder: Path, source: Source, chosen: Chosen) -> bool:
    """Whether the folder holds just that. Raises BadModel where it holds something else."""
    if not folder.is_dir() or folder.is_symlink() or not any(folder.iterdir()):
        return False
    wrong = differences(config, folder, source, chosen.files)
    if not wrong:
        return True
    shown = wrong[0][:200]
    raise BadModel(
        Text(
            f"{folder} 里已有文件，但 {len(wrong)} 个与来源不同（如 {shown}）。请换一个目录，或先删除那里的模型。",
            f"{folder} holds files already, and {len(wrong)} of them are not as the source has them ({shown} for one). "
            "Choose another folder, or delete the model there first.",
        )
    )


def work(config: Config, options: argparse.Namespace) -> None:
    """Raises BadModel, Broken, OSError, Stopped, and Satisfied where everything is there."""
    if options.in_place:
        in_place(config, Path(tidy(options.model)), look=options.look)
        return
    source = source_of(config, options)
    chosen = listed(source, options)
    if options.look:
        looking.tell(options, source, chosen)
        return
    looking.say_plan(source, chosen)
    folder = options.folder
    if is_there(config, folder, source, chosen):
        ending.tell(folder, digests.known(config.state_dir, folder) or Manifest({}), via=_via(options))
        _say_done(source)
        raise ending.Satisfied
    part = target.begin(folder)
    target.room(part, max(0, chosen.bytes - looking.bytes_in(part)))
    progress = Progress(chosen.bytes)
    made = fetch.Fetch(source, part, count=progress.add, at_once=options.at_once).all(chosen.files)
    progress.end()
    _tidy(part, chosen)
    ending.put(config, part, folder, made, via=_via(options))
    _say_done(source)


def _say_done(source: Source) -> None:
    """The other end of a copy waits for that; without it, it ends by itself later."""
    if isinstance(source, OtherServer):
        try:
            source.done()
        except (Broken, BadModel) as error:
            print(error, flush=True)


def _via(options: argparse.Namespace) -> str:
    return {"upload": "uploaded", "path": "copied", "server": "copied"}.get(options.source, "downloaded")


def _tidy(part: Path, chosen: Chosen) -> None:
    """Take away what an earlier try has left there that is no part of the model any more."""
    names = {file.name for file in chosen.files}
    for path in sorted(part.rglob("*"), reverse=True):
        name = str(path.relative_to(part))
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif name not in names and not name.startswith(f"{OWN}/"):
            path.unlink()


def in_place(config: Config, folder: Path, *, look: bool) -> None:
    """Only tell of a model that lies there; nothing is copied. Raises BadModel, OSError."""
    if look:
        looking.tell_in_place(folder)
        return
    known = digests.known(config.state_dir, folder)
    model = report.made(folder, via="found", digest=known.digest if known else "")
    size = amount(model.bytes)
    say(f"{folder} 已登记：{model.files} 个文件，{size}。", f"{folder} is listed: {model.files} files, {size}.")


def main(argv: list[str] | None = None) -> int:
    options = asked(sys.argv[1:] if argv is None else argv)
    return ending.run(lambda config: work(config, options))


if __name__ == "__main__":
    sys.exit(main())
