"""What one agent is told by its `config.json`: which server it is, where Redis is, which key signs its payloads."""

import argparse
import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deployments.agent import addresses, authorities, credentials, layers
from deployments.agent.credentials import Pair
from deployments.agent.masks import Masks
from deployments.steps import Text

log = logging.getLogger("config")


class ConfigError(Exception):
    """A config file that cannot be used; `text` says what happened and what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


@dataclasses.dataclass(frozen=True)
class Config:
    """One server's agent. `key` is hex; `env` is added to the environment of every step and of the sampler's tools.

    `redis_url` is the address in use, `addresses` all of them, without user and password, in the order they are tried.
    `console` and `pin` are those of the pages, where they are others than joining wrote into the installation.
    `redis_ca` holds the authorities (PEM) to trust for Redis over TLS.
    """

    server_id: int
    name: str
    redis_url: str
    prefix: str
    key: str
    state_dir: Path
    path: Path
    interval_s: float = 1.0
    simulated: bool = False
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    redis_ca: str = ""
    config_ca: str = ""  # the same as the file has it: an order may have replaced it since
    redis_more: tuple[str, ...] = ()  # addresses to try after redis_url
    console: str = ""
    pin: str = ""
    addresses: tuple[str, ...] = ()
    before: Pair | None = None  # the console may still go by these
    mask_names: tuple[str, ...] = ()  # of fields whose values are secrets of the site, beside those that masks.py knows
    mask_values: tuple[str, ...] = ()  # what is to stand in no log
    origin: str = ""  # marks the keys of the file itself

    @property
    def keys(self) -> list[str]:
        """Those that may sign a payload."""
        return [self.key, *([self.before.key] if self.before else [])]

    @property
    def masks(self) -> Masks:
        """For what programs print here: what must not be read in their lines."""
        return Masks([*self.keys, urlsplit(self.redis_url).password or "", *self.mask_values], self.mask_names)

    @property
    def redis_options(self) -> dict[str, str]:
        """What a client of Redis needs beside the address: over TLS, whom to trust beside the system's authorities."""
        return {"ssl_ca_data": self.redis_ca} if self.redis_ca and self.redis_url.startswith("rediss://") else {}

    @property
    def root(self) -> Path:
        """Where probes read files of the system: `/`, another folder on a simulated server."""
        return Path(self.env.get("ASCEND_ROOT", "/"))

    @property
    def attempts(self) -> Path:
        return self.state_dir / "attempts"

    @property
    def engines(self) -> Path:
        return self.state_dir / "engines"

    @property
    def logs(self) -> Path:
        """The pieces of engines' logs, shipped as the lines of attempts are."""
        return self.state_dir / "logs"

    @property
    def telemetry(self) -> Path:
        return self.state_dir / "telemetry"


TYPES: dict[str, tuple[type, ...]] = {
    "server_id": (int,),
    "name": (str,),
    "redis_url": (str,),
    "prefix": (str,),
    "key": (str,),
    "state_dir": (str,),
    "interval_s": (int, float),
    "simulated": (bool,),
    "env": (dict,),
    "redis_more": (list, tuple),
    "console": (str,),
    "pin": (str,),
    "redis_ca": (str,),
    "mask_names": (list, tuple),
    "mask_values": (list, tuple),
}
OPTIONAL = {"interval_s", "simulated", "env", "redis_more", "console", "pin", "redis_ca", "mask_names", "mask_values"}


def load(path: Path) -> Config:
    """The config in `path` with its layers; fields it does not know are left for newer agents. Raises ConfigError."""
    path = path.absolute()
    return addresses.layered(authorities.layered(credentials.layered(parse(path, _read(path)))))


class Current:
    """`config` as its files have it now: keys and addresses may change while a process runs."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.seen = self._stamp()

    def __call__(self) -> Config:
        stamp = self._stamp()
        if stamp != self.seen:
            try:
                self.config, self.seen = load(self.config.path), stamp
            except Exception as error:
                log.warning("the changed config is not used: %s", error)
        return self.config

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        return layers.stamp(self.config.state_dir, self.config.path)


def parse(path: Path, data: dict[str, Any]) -> Config:
    """The config that `data` holds, said to stand in `path`. Raises ConfigError."""
    for name, types in TYPES.items():
        if name not in data:
            if name in OPTIONAL:
                continue
            raise _bad(path, name, Text("缺少", "is missing"))
        if not isinstance(data[name], types) or (isinstance(data[name], bool) and bool not in types):
            raise _bad(path, name, Text("类型不对", "is of the wrong type"))
    known = {name: data[name] for name in TYPES if name in data}
    _check(path, known)
    config_ca = known.get("redis_ca", "")
    lists = {name: tuple(known.get(name, ())) for name in ("redis_more", "mask_names", "mask_values")}
    return Config(**{**known, **lists, "state_dir": Path(known["state_dir"]), "path": path, "config_ca": config_ca})


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        words = os.strerror(error.errno or 0)
        raise ConfigError(
            Text(
                f"读不了代理配置 {path}（{words}）。请在控制台重新加入这台服务器，或改正 --config 的路径。",
                f"The agent's config {path} cannot be read ({words}). Join this server again from the console, "
                "or correct the path after --config.",
            )
        ) from error
    except ValueError as error:
        raise _bad(path, "JSON", Text("无法解析", "cannot be parsed")) from error
    if not isinstance(data, dict):
        raise _bad(path, "JSON", Text("不是一个对象", "is not an object"))
    return data


def _check(path: Path, data: dict[str, Any]) -> None:
    try:
        bytes.fromhex(data["key"])
    except ValueError as error:
        raise _bad(path, "key", Text("不是十六进制", "is not hexadecimal")) from error
    if len(data["key"]) < 32:
        raise _bad(path, "key", Text("短于 16 字节", "is shorter than 16 bytes"))
    if not Path(data["state_dir"]).is_absolute():
        raise _bad(path, "state_dir", Text("不是绝对路径", "is not an absolute path"))
    if not all(isinstance(value, str) for value in data.get("env", {}).values()):
        raise _bad(path, "env", Text("的值必须是文字", "must hold texts only"))
    for name in ("mask_names", "mask_values"):
        if not all(isinstance(value, str) for value in data.get(name, ())):
            raise _bad(path, name, Text("必须是文字的列表", "must be a list of texts"))
    if any(addresses.problem(address) for address in data.get("redis_more", ())):
        raise _bad(path, "redis_more", Text("必须是 Redis 地址", "must hold addresses of Redis"))
    if data.get("redis_ca") and not authorities.is_authority(data["redis_ca"]):
        raise _bad(path, "redis_ca", Text("不是证书", "is no certificate"))
    if data.get("interval_s", 1.0) <= 0:
        raise _bad(path, "interval_s", Text("必须大于 0", "must be above 0"))


def _bad(path: Path, field: str, words: Text) -> ConfigError:
    return ConfigError(
        Text(
            f"代理配置 {path} 的 {field} {words.zh}。请在控制台重新加入这台服务器，以生成新的配置。",
            f"In the agent's config {path}, {field} {words.en}. Join this server again from the console for a new one.",
        )
    )


def spoken(text: Text) -> str:
    """The sentence in the language of this terminal."""
    language = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
    return text.zh if language.startswith("zh") else text.en


def begin(parser: argparse.ArgumentParser, argv: list[str] | None) -> tuple[argparse.Namespace, Config]:
    """How every process of an agent begins: its options with `--config`, its log, its config.

    A config that cannot be used is answered in a sentence; exit code 2.
    """
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        return options, load(options.config)
    except ConfigError as error:
        print(spoken(error.text), file=sys.stderr)
        raise SystemExit(2) from error
