"""Names and addresses of this machine, as its network sees them. Standard library only."""

import ipaddress
import re
import socket
import threading
from pathlib import Path

MOST = 100  # a node of a cluster may hold an address for each of its thousands of services
ASK_S = 2.0


def is_loopback(host: str) -> bool:
    """True for a name or address that means the machine itself; `[::1]` counts as `::1`."""
    host = host.strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_number(host: str) -> bool:
    """Whether programs take it for an address though it is not written as one: 127.1, 0x7f.1, 2130706433."""
    return re.fullmatch(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*\.?", host, re.IGNORECASE) is not None


def of_this_machine() -> list[str]:
    """Its names and then its addresses, loopback's own included; the same machine always gives the same list."""
    names = [name for name in (socket.gethostname(), _full_name()) if is_name(name)]
    return list(dict.fromkeys([*names, "localhost", "127.0.0.1", "::1", *sorted({*_ipv4(), *_ipv6()})[:MOST]]))


def _full_name() -> str:
    """With its domain, where that is known at once: without a name server the question takes many seconds."""
    found = [""]
    asking = threading.Thread(target=lambda: found.__setitem__(0, socket.getfqdn()), daemon=True)
    asking.start()
    asking.join(ASK_S)
    return found[0]


def is_name(text: str) -> bool:
    """Whether it is a name that a certificate may hold."""
    label = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
    return (
        len(text) <= 253
        and not is_address(text)
        and not is_number(text)
        and re.fullmatch(rf"(?:\*\.)?{label}(?:\.{label})*", text) is not None
    )


def _ipv4() -> list[str]:
    """The addresses that the kernel delivers to itself; the standard library has no call for them."""
    found, last = [], ""
    for line in _lines("/proc/net/fib_trie"):
        if "|--" in line:
            last = line.split("|--")[1].strip()
        elif "/32 host LOCAL" in line and is_address(last) and not is_loopback(last):
            found.append(last)
    return found


def _ipv6() -> list[str]:
    """Those that are good beyond one link: a link's own are written with the name of the interface."""
    found = []
    for line in _lines("/proc/net/if_inet6"):
        words = line.split()
        if len(words) == 6 and words[3] == "00" and len(words[0]) == 32:
            found.append(str(ipaddress.IPv6Address(int(words[0], 16))))
    return found


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
