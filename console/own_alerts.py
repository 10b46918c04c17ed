"""Alerts about the console itself: its certificate, and plain text."""

from datetime import timedelta

from django.conf import settings

from console import addresses, alerts, certificates, tls
from deployments.steps import Text

SOON, NOW = timedelta(days=30), timedelta(days=7)
PAGE = "/certificate/"


def look() -> None:
    """Open and end them as things are now."""
    _plaintext()
    _faults()
    _expiry()


def _plaintext() -> None:
    if not settings.ALLOW_PLAINTEXT:
        alerts.resolve("plaintext")
        return
    alerts.fire(
        "plaintext",
        what=Text(
            "ALLOW_PLAINTEXT=1：服务器可以不经 TLS 加入，途中可读到密码与密钥。",
            "ALLOW_PLAINTEXT=1: servers may join without TLS, and passwords and keys can be read on the way.",
        ),
        do=Text(
            "去掉 ALLOW_PLAINTEXT 并重启控制台，再为各服务器重新生成命令。",
            "Leave ALLOW_PLAINTEXT out, start the console anew, and make a new command for each server.",
        ),
        link="/ports/",
    )


def _faults() -> None:
    """What browsers and agents refuse already."""
    faults = tls.troubles(addresses.shown_names())
    if not faults:
        alerts.resolve("certificate-fault")
        return
    what = Text("".join(fault.what.zh for fault in faults), " ".join(fault.what.en for fault in faults))
    alerts.fire("certificate-fault", what=what, do=faults[0].do, severity="critical", link=PAGE)


def _expiry() -> None:
    """Thirty days before the end it is a warning, seven days before it is critical."""
    shown = tls.facts()
    left = shown.not_after - certificates.now() if shown else SOON
    if shown is None or left >= SOON or left <= timedelta(0):  # an end that has come is a fault
        alerts.resolve("certificate-expiry")
        return
    day = f"{shown.not_after:%Y-%m-%d}"
    what = Text(
        f"控制台的证书将于 {day} 到期，还有 {left.days} 天。",
        f"The console's certificate ends on {day}, in {left.days} days.",
    )
    do = tls.TROUBLES["expired"][1 if tls.is_own() else 2]
    severity = "critical" if left < NOW else "warning"
    alerts.fire("certificate-expiry", what=what, do=do, severity=severity, link=PAGE)
