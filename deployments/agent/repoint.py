"""Other addresses for this agent, by the console's order; and which of its addresses it goes by."""

import dataclasses
import logging
import re
import time
from collections.abc import Callable
from typing import Any

from deployments.agent import addresses, authorities
from deployments.agent.addresses import Kept
from deployments.agent.config import Config
from deployments.agent.orders import CannotObey

log = logging.getLogger("repoint")

MOST = 8
AWAY_S = 10.0  # without an answer, until another address is tried
UNHEARD_S = 60.0  # with a Redis that answers, but at which no console listens
BACK_S = 60.0  # how often one that stands before ours in the list is tried
CONFIRM_S = 600.0  # heard at a new address for so long, the ones from before are forgotten
HEARD_S = 30.0
WEB = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,253}")
PIN = re.compile(r"sha256//[A-Za-z0-9+/]{43}=")

Current = Callable[[], Config]
Probe = Callable[[Config, str], int]
"""`probe(config, address)`: how many listen to our beat there. Raises CannotObey where Redis does not take us."""


class Repoint:
    """The order `repoint` {"redis": [address, …], "console": url, "pin": text, "ca": PEM}: other addresses from now on.

    The first is tried before anything changes: it takes this server's password, and a console listens there. `ca`
    names authorities to trust for Redis beside those that are trusted already.
    """

    def __init__(self, current: Current, probe: Probe) -> None:
        self.current = current
        self.probe = probe
        self.handlers = {"repoint": self.repoint}

    def repoint(self, args: dict[str, Any]) -> str:
        wished, web, pin = args.get("redis"), args.get("console") or "", args.get("pin") or ""
        if not isinstance(wished, list) or not 0 < len(wished) <= MOST:
            raise CannotObey("指令中没有地址", "the order holds no addresses")
        for address in wished:
            if why := addresses.problem(address):
                raise CannotObey(
                    f"{str(address)[:80]} 不是地址：{why.zh}", f"{str(address)[:80]} is no address: {why.en}"
                )
        if (web and not WEB.fullmatch(str(web))) or (pin and not PIN.fullmatch(str(pin))):
            raise CannotObey("指令中的控制台页面地址不对", "the order holds no address of the console's pages")
        config = self.current()
        trusted = _with_authorities(config, args.get("ca") or "")
        if not self.probe(dataclasses.replace(config, redis_ca=trusted), wished[0]):
            raise CannotObey(
                f"{wished[0]} 接受这台服务器，但那里没有控制台，未作改动",
                f"{wished[0]} takes this server, but no console listens there; nothing was changed",
            )
        old = tuple(address for address in config.addresses if address not in wished)
        kept = Kept(config.origin, tuple(dict.fromkeys(wished)), old, str(web), str(pin))
        if trusted != config.redis_ca:
            authorities.write(config.state_dir, config.config_ca, trusted)
        addresses.write(config.state_dir, kept)
        return str(wished[0])


def _with_authorities(config: Config, pem: Any) -> str:
    """Whom to trust with `pem` ('' for nobody more). Raises CannotObey where it is no certificate."""
    if not pem or pem in config.redis_ca:
        return config.redis_ca
    if not isinstance(pem, str) or not authorities.is_authority(pem):
        raise CannotObey("指令中没有签发机构的证书", "the order holds no certificate of an authority")
    both = f"{config.redis_ca.rstrip()}\n{pem.strip()}\n".lstrip()
    if len(both) > authorities.MAX_PEM:
        raise CannotObey("指令中的签发机构过多", "the order holds too many authorities")
    return both


class Follower:
    """Decides which address the link goes by. `turn` is called often, and costs little where nothing is wrong."""

    def __init__(self, current: Current, probe: Probe, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.current = current
        self.probe = probe
        self.monotonic = monotonic
        self.known = current().addresses
        self.at = addresses.present(current())
        addresses.note(current().state_dir, self.at)
        self.leave_at: int | None = None  # beats, after an order has changed the list
        self.since = self.tried = self.heard = monotonic()

    def turn(self, *, away_s: float, listeners: int, beats: int) -> str | None:
        """The address to change to, or None.

        `away_s`: for how long Redis has not answered. `listeners`: how many took the last beat. `beats`: sent so far
        by way of the present address: who leaves it by order says so there first.
        """
        config, now = self.current(), self.monotonic()
        if listeners and not away_s:
            self.heard = now
        if config.addresses != self.known:
            self.known, self.leave_at = config.addresses, beats + 1
        if self.leave_at is not None and (away_s or beats >= self.leave_at):
            self.leave_at = None
            return self._go(config.addresses[0])
        if len(config.addresses) == 1 or self.leave_at is not None:
            return None
        self._confirm(config, now)
        lost = away_s >= AWAY_S or (not away_s and now - self.heard >= UNHEARD_S)
        before = config.addresses[: config.addresses.index(self.at)]
        if now - self.tried < (AWAY_S if lost else BACK_S) or not (lost or before):
            return None
        self.tried = now
        return self._go(self._search(config, config.addresses if lost else before, alone=away_s > 0))

    def _search(self, config: Config, among: tuple[str, ...], *, alone: bool) -> str:
        """The first at which a console listens; who is `alone` takes one where none does, too; else the present one."""
        takes = []
        for address in among:
            try:
                if self.probe(config, address):
                    return address
                takes.append(address)
            except CannotObey as error:
                log.info("%s: %s", address, error)
        return takes[0] if takes and alone else self.at

    def _go(self, address: str) -> str | None:
        if address == self.at:
            return None
        log.warning("from now on by %s", address)
        self.at = address
        self.since = self.tried = self.heard = self.monotonic()
        addresses.note(self.current().state_dir, address)
        return address

    def _confirm(self, config: Config, now: float) -> None:
        """Forget the addresses from before an order, once a console has heard us at a new one for long."""
        if now - self.since < CONFIRM_S or now - self.heard > HEARD_S:
            return
        kept = addresses.read(config.state_dir, config.origin)
        if kept and kept.old and self.at in kept.redis:
            addresses.write(config.state_dir, dataclasses.replace(kept, old=()))
