"""Every line of a bundle goes through here: secrets never, requests of users never, names and addresses only on demand.

A name becomes `host-3fa2c1`, an address `net-3fa2.host-91c4`: the same in every file of one bundle, whatever server it
is from, so that who reads it still sees which peer is meant and whether two share a network.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable

from deployments.agent.support.secret_words import without_secrets

IPV4 = re.compile(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w]|\.\d)")
IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,39}(?![\w:])")
FULL_IPV6 = re.compile(r"(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]")
MAC = re.compile(r"(?<![\w:.-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])")
STAND = re.compile(r"127\.|0\.0\.0\.0|255\.")  # of this machine alone, or a netmask
SHORTEST = 3  # a name of two letters stands in half of all words
# What engines print of requests. Their logs hold one request to a line, so the whole line goes.
REQUEST = re.compile(
    r"""["']?\b(?:prompt|prompts|prompt_token_ids|messages|input_text|inputs|input_ids|request[_ ]body|raw_request|"""
    r"""generated_text|outputs?_text|reasoning_content|tool_calls)\b["']?\s*[:=]\s*["'\[{(]|"""
    r"""["'](?:content|text|input|query|question|answer)["']\s*:\s*["'\[{]|"""
    r"""<\|(?:im_start|im_end|user|assistant|system|begin_of_text|start_header_id)\|>|"""
    r"""(?i:\b(?:received request|request (?:body|payload|content))\b.{0,80}?[:=]\s*\S)""",
)
LEFT_OUT = "[left out: a line that holds a request, %d characters]"
DATED = re.compile(r"^.{0,60}?\d\d:\d\d:\d\d(?:[.,]\d+)?")


REQUEST_HINTS = (
    "prompt", "messages", "input", "request", "output", "generated", "content", "tool_call", "<|", '"text"', "'text'",
    "query", "question", "answer",
)  # fmt: skip


class Masks:
    """`block` gives whole lines as they may leave the site; `count` says how many places were changed."""

    def __init__(self, salt: str = "", names: Iterable[str] = (), *, hosts: bool = False) -> None:
        self.salt, self.hosts, self.count = salt.encode(), hosts, 0
        known = {name.lower() for name in names if len(name) >= SHORTEST}
        self.names = sorted(known, key=lambda name: (-len(name), name))
        self._patterns: dict[tuple[str, ...], re.Pattern[str]] = {}

    def line(self, text: str) -> str:
        return self.block(text)

    def block(self, text: str) -> str:
        """The same where nothing is to be hidden."""
        text = "\n".join(map(self._judged, text.split("\n")))
        return text if self.hosts else self._without_hosts(text, text.lower())

    def _judged(self, line: str) -> str:
        found = self._request(line) or without_secrets(line)
        self.count += found != line
        return found

    def _request(self, line: str) -> str:
        """What stands for a line with a request, its time kept; '' for any other."""
        low = line.lower()
        if not any(hint in low for hint in REQUEST_HINTS) or not REQUEST.search(line):
            return ""
        dated = DATED.match(line)
        return (dated[0] + " " if dated else "") + LEFT_OUT % len(line)

    def _without_hosts(self, text: str, low: str) -> str:
        text, macs = MAC.subn(lambda found: "mac-" + self._short(found[0].lower(), 6), text)
        text = IPV4.sub(lambda found: self._ipv4(found[0]), text)
        if "::" in text or FULL_IPV6.search(text):
            text = IPV6.sub(lambda found: self._ipv6(found[0]), text)
        self.count += macs
        here = tuple(name for name in self.names if name in low)
        if here:
            text, named = self._pattern(here).subn(lambda found: self.name(found[0]), text)
            self.count += named
        return text

    def _pattern(self, names: tuple[str, ...]) -> "re.Pattern[str]":
        """Only of those names that stand somewhere in the block: a fleet has hundreds."""
        if names not in self._patterns:
            words = "|".join(map(re.escape, names))
            self._patterns[names] = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)
        return self._patterns[names]

    def name(self, name: str) -> str:
        """What stands for a server of that name."""
        return name if self.hosts else "host-" + self._short(name.lower(), 6)

    def _ipv4(self, address: str) -> str:
        if STAND.match(address):
            return address
        self.count += 1
        return f"net-{self._short(address.rpartition('.')[0], 4)}.host-{self._short(address, 4)}"

    def _ipv6(self, found: str) -> str:
        try:
            address = ipaddress.IPv6Address(found)
        except ValueError:
            return found  # a time of the day, or a place on the PCI bus
        if address.is_loopback or address.is_unspecified:
            return found
        self.count += 1
        network = str(address.exploded)[:19]
        return f"net-{self._short(network, 4)}.host-{self._short(str(address), 4)}"

    def _short(self, word: str, n: int) -> str:
        return hmac.new(self.salt, word.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:n]
