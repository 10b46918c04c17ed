"""The certificate that others see when they open the console or its Redis: the site's, or one of our own authority.

`var/tls`: ca.key ca.crt (the authority), server.key server.crt (what is shown), crossed.crt (the authority of before
vouches for the one of now). The server's key outlives its certificates: joined servers know it.
"""

import secrets
from datetime import timedelta
from pathlib import Path
from socket import gethostname
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from console import certificates, names, valkey
from console.certificates import Facts
from console.environment import BadSetting
from deployments.steps import Text

RENEW_DAYS = 30
NEXT_AUTHORITY_DAYS = 3 * 365  # so that servers have years to learn of the next one
ERA = 2025  # a clock before it was never set


class Shown(NamedTuple):
    """What the web server and the front of Redis are given, and what agents are to trust (PEM; "": their system)."""

    chain: Path
    key: Path
    ca: str


def folder() -> Path:
    return Path(settings.VAR_DIR) / "tls"


def is_own() -> bool:
    """Whether our own authority signs, for the site has given no certificate."""
    return not settings.TLS_CERTIFICATE


def shown() -> Shown | None:
    """None where there is no certificate yet."""
    if not is_own():
        trusted = Path(settings.TLS_CA).read_text() if settings.TLS_CA else ""
        return Shown(Path(settings.TLS_CERTIFICATE), Path(settings.TLS_KEY), trusted)
    chain, key, ca = (folder() / name for name in ("server.crt", "server.key", "ca.crt"))
    return Shown(chain, key, ca.read_text()) if chain.exists() and ca.exists() else None


def facts() -> Facts | None:
    """What the certificate says; None where there is none, or none that can be read."""
    found = shown()
    try:
        return certificates.read(found.chain.read_text()) if found else None
    except (OSError, ValueError):
        return None


def authority_facts() -> Facts | None:
    """The authority that the site's systems are to trust; None where they do by themselves."""
    found = shown()
    try:
        return certificates.read(found.ca) if found and found.ca else None
    except ValueError:
        return None


def fingerprint() -> str | None:
    """The pin of the public key behind PUBLIC_URL, as `curl --pinnedpubkey` takes it.

    None where it is plain HTTP, and where something that we do not know answers there: then the systems' own
    authorities judge.
    """
    if settings.PUBLIC_CERTIFICATE:
        return certificates.read(Path(settings.PUBLIC_CERTIFICATE).read_text()).pin
    if not settings.HTTPS or not _is_ours(settings.PUBLIC_URL):
        return None
    found = facts()
    return found.pin if found else None


def _is_ours(url: str) -> bool:
    """Whether our own web server answers at PUBLIC_URL, rather than a proxy in front of it."""
    parts = urlsplit(url)
    return not url or (parts.scheme == "https" and (parts.port or 443) == settings.PORT)


# ---------- at the start ----------


def prepare(wanted: list[str]) -> None:
    """See that there is a certificate for these names and addresses. Raises BadSetting."""
    if not is_own():
        _check_pair()
        return
    now = certificates.now()
    if now.year < ERA:
        raise BadSetting(
            f"This machine's clock says {now:%Y-%m-%d}, so no certificate could be made. Set it (chronyd), then start."
        )
    try:
        _authority()
        _server(list(dict.fromkeys([*wanted, *names.of_this_machine()])))
    except (OSError, ValueError) as error:
        raise BadSetting(
            f"The certificates in {folder()} cannot be used ({error}). Give them back to this user, "
            "or move the folder away; servers that have joined then join again."
        ) from error


def _check_pair() -> None:
    try:
        certificates.check_pair(Path(settings.TLS_CERTIFICATE), Path(settings.TLS_KEY))
        certificates.read(Path(settings.TLS_CERTIFICATE).read_text())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise BadSetting(
            f"TLS_KEY={settings.TLS_KEY!r} is not the key of TLS_CERTIFICATE={settings.TLS_CERTIFICATE!r} ({error}). "
            "Name the two that belong together; in the certificate's file the server's own comes first."
        ) from error


def _authority() -> None:
    """The one that is there, or that `rotate` has made since the last start; the first one; one for years to come."""
    _adopt()
    ca = folder() / "ca.crt"
    if not ca.exists():
        key, made = _new_authority()
        valkey.write_private(folder() / "ca.key", key)
        _write("ca.crt", made)
    elif certificates.read(ca.read_text()).not_after < certificates.now() + timedelta(days=NEXT_AUTHORITY_DAYS):
        rotate()
        _adopt()


def rotate(*, stolen: bool = False) -> None:
    """Make the next authority, used from the next start on: what runs shows a certificate of the one before.

    That one vouches for it, so servers that know only that one go on as they are; not where its key was `stolen`:
    then nothing of before is good any more.
    """
    before, before_key = (folder() / "ca.crt").read_text(), (folder() / "ca.key").read_text()
    key, made = _new_authority()
    crossed = "" if stolen else certificates.crossed(made, before, before_key, now=certificates.now())
    (folder() / "next.crt").unlink(missing_ok=True)
    valkey.write_private(folder() / "next.key", key)
    _write("next-crossed.crt", crossed)
    _write("next.crt", made)  # the last: without it there is no next one


def _adopt() -> None:
    """The next authority becomes the one of now. Cut off in the middle, the next start goes on with it."""
    if not (folder() / "next.crt").exists():
        return
    if (folder() / "next-crossed.crt").exists() and not (folder() / "next-crossed.crt").read_text():
        (folder() / "server.key").unlink(missing_ok=True)
    for old, new in (("next-crossed.crt", "crossed.crt"), ("next.key", "ca.key"), ("next.crt", "ca.crt")):
        if (folder() / old).exists():
            (folder() / old).replace(folder() / new)


def _new_authority() -> tuple[str, str]:
    """(key, certificate); no two have the same name."""
    now, key = certificates.now(), certificates.new_key()
    name = f"Ascend Console {gethostname()[:24]} {now:%Y-%m-%d} {secrets.token_hex(4)}"
    return key, certificates.authority(key, name, now=now)


def _server(wanted: list[str]) -> None:
    """Sign anew where a name is missing, RENEW_DAYS are left, or another authority signed it; the key stays."""
    chain, key, ca = (folder() / name for name in ("server.crt", "server.key", "ca.crt"))
    if not key.exists():
        valkey.write_private(key, certificates.new_key())
    wanted = [name for name in wanted if names.is_address(name) or names.is_name(name)]
    if chain.exists():
        old = certificates.read(chain.read_text())
        good = old.not_after > certificates.now() + timedelta(days=RENEW_DAYS) and set(wanted) <= set(old.names)
        if good and _signed(old, ca) and old.pin == certificates.pin_of_key(key.read_text()):
            return
    made = certificates.server(
        key.read_text(), ca.read_text(), (folder() / "ca.key").read_text(), wanted, now=certificates.now()
    )
    crossed = folder() / "crossed.crt"
    _write("server.crt", made + (crossed.read_text() if crossed.exists() else ""))


def _signed(server: Facts, ca: Path) -> bool:
    """By name, which no other authority has."""
    return server.issuer == certificates.read(ca.read_text()).subject


def _write(name: str, text: str) -> None:
    """A file that everybody may read."""
    valkey.write_private(folder() / name, text)
    (folder() / name).chmod(0o644)


# ---------- what is wrong with it ----------


class Trouble(NamedTuple):
    code: str  # expired, not_yet, name, issuer, key
    what: Text
    do: Text


def troubles(wanted: list[str]) -> list[Trouble]:
    """What clients would find wrong that reach us under these names; each thing once."""
    found = shown()
    if found is None:
        return []
    bad: dict[str, list[str]] = {}
    for name in wanted:
        try:
            code = certificates.trouble(found.chain, found.key, found.ca, name)
        except OSError:
            code = "key"
        if code:
            bad.setdefault(code, []).append(name)
    return [_trouble(code, ", ".join(told)) for code, told in bad.items()]


def _trouble(code: str, told: str) -> Trouble:
    what, own, given = TROUBLES[code]
    return Trouble(code, Text(what.zh.format(names=told), what.en.format(names=told)), own if is_own() else given)


_RESTART = Text(
    "重启控制台（make down，再 make up），证书会自动续期。",
    "Start the console anew (make down, make up): it renews the certificate by itself.",
)
_SET_CLOCK = Text(
    "校准本机时钟（chronyd），再重启控制台。", "Set this machine's clock (chronyd), then start the console anew."
)
# code: what is wrong, what to do about our own certificate, what to do about the site's
TROUBLES = {
    "expired": (
        Text("证书已过期，浏览器与代理都会拒绝连接。", "The certificate has expired: browsers and agents refuse it."),
        _RESTART,
        Text(
            "把新证书放到 TLS_CERTIFICATE 与 TLS_KEY 所指的位置，再重启控制台。",
            "Put a new one where TLS_CERTIFICATE and TLS_KEY point to, then start the console anew.",
        ),
    ),
    "not_yet": (
        Text("按本机时钟，证书尚未生效。", "By this machine's clock the certificate is not valid yet."),
        _SET_CLOCK,
        _SET_CLOCK,
    ),
    "name": (
        Text(
            "证书中没有 {names}，以此访问的浏览器与代理会拒绝。",
            "The certificate does not hold {names}: who comes by that refuses it.",
        ),
        _RESTART,
        Text(
            "申请包含该名称的证书，或把 PUBLIC_URL、PUBLIC_REDIS_URL 设为证书中的名称。",
            "Get one that holds it, or set PUBLIC_URL and PUBLIC_REDIS_URL to a name that it holds.",
        ),
    ),
    "issuer": (
        Text(
            "证书的签发者不受信任，或中间证书不全。",
            "Nobody here trusts who signed the certificate, or one in between is missing.",
        ),
        _RESTART,
        Text(
            "用 TLS_CA 指明签发机构的证书，并把中间证书接在 TLS_CERTIFICATE 之后。",
            "Name its authority with TLS_CA, and put those in between into TLS_CERTIFICATE after the server's own.",
        ),
    ),
    "key": (
        Text("证书与密钥不匹配，或文件无法读取。", "Certificate and key do not go together, or cannot be read."),
        _RESTART,
        Text(
            "改正 TLS_CERTIFICATE 与 TLS_KEY，再重启控制台。",
            "Correct TLS_CERTIFICATE and TLS_KEY, then start the console anew.",
        ),
    ),
}  # fmt: skip
