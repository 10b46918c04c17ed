"""Every line of a bundle goes through here: secrets never, requests of users never, names and addresses only on demand.

A name becomes `host-3fa2c1`, an address `net-3fa2.host-91c4`: the same in every file of one bundle, whatever server it
is from, so that who reads it still sees which peer is meant and whether two share a network.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable

from deployments.agent.support.secret_words import without_secrets

IPV4 = re.compile(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w]|\.\d)")
IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4}){1,6}(?![\w:])")
MAC = re.compile(r"(?<![\w:.-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])")
STAND = re.compile(r"127\.|0\.0\.0\.0|255\.")  # of this machine alone, or a netmask
CLOCK = re.compile(r"\d\d:\d\d:\d\d")
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


class Masks:
    """`line` gives a line as it may leave the site; `count` says how many were changed."""

    def __init__(self, salt: str = "", names: Iterable[str] = (), *, hosts: bool = False) -> None:
        self.salt, self.hosts, self.count = salt.encode(), hosts, 0
        known = sorted({name.lower() for name in names if len(name) >= SHORTEST}, key=len, reverse=True)
        words = "|".join(map(re.escape, known))
        self.names = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE) if known else None

    def line(self, text: str) -> str:
        """Without its end; the same where nothing is to be hidden."""
        found = self._request(text) or self._rest(text)
        self.count += found != text
        return found

    def _request(self, text: str) -> str:
        """What stands for a line with a request, its time kept; '' for any other."""
        if not REQUEST.search(text):
            return ""
        dated = DATED.match(text)
        return (dated[0] + " " if dated else "") + LEFT_OUT % len(text)

    def _rest(self, text: str) -> str:
        text = without_secrets(text)
        if self.hosts:
            return text
        text = MAC.sub(lambda found: "mac-" + self._short(found[0].lower(), 6), text)
        text = IPV4.sub(lambda found: self._ipv4(found[0]), text)
        text = IPV6.sub(lambda found: self._ipv6(found[0]), text)
        return self.names.sub(lambda found: self.name(found[0]), text) if self.names else text

    def name(self, name: str) -> str:
        """What stands for a server of that name."""
        return name if self.hosts else "host-" + self._short(name.lower(), 6)

    def _ipv4(self, address: str) -> str:
        if STAND.match(address):
            return address
        return f"net-{self._short(address.rpartition('.')[0], 4)}.host-{self._short(address, 4)}"

    def _ipv6(self, address: str) -> str:
        if CLOCK.match(address) or "::" not in address and address.count(":") < 7:
            return address  # a time of the day, or a PCI address
        return f"net-{self._short(address[:14], 4)}.host-{self._short(address, 4)}"

    def _short(self, word: str, n: int) -> str:
        return hmac.new(self.salt, word.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:n]
