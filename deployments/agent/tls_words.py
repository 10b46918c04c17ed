"""Why TLS with the console failed, in words. Plain code, for what joins and for the agent's own log."""

import re
import ssl
import time

from deployments.steps import Text

NOT_YET, EXPIRED = 9, 10
OTHER_NAME = (62, 64)
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


def explain(error: BaseException) -> tuple[str, Text] | None:
    """(code, what and what to do) where TLS is behind `error`, however libraries have wrapped it; None where not.

    Codes: tls_clock, tls_expired, tls_name, tls_issuer, tls_plain, tls.
    """
    found = _tls_error(error)
    if found is None:
        return None
    if isinstance(found, ssl.SSLCertVerificationError):
        return _unverified(found)
    if any(word in str(found) for word in NO_TLS):
        return "tls_plain", Text(
            "对端没有使用 TLS。请检查地址与端口，或在控制台改正 PUBLIC_REDIS_URL。",
            "What answers there speaks no TLS. Check address and port, or correct PUBLIC_REDIS_URL on the console.",
        )
    return "tls", Text(
        f"TLS 握手失败（{_brief(found)}）。请检查中间的代理与防火墙。",
        f"The TLS handshake failed ({_brief(found)}). Look at proxies and firewalls in between.",
    )


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """redis-py hides it behind its own error, which was raised while that one was handled."""
    for _depth in range(10):
        if error is None or isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _unverified(error: ssl.SSLCertVerificationError) -> tuple[str, Text]:
    today = time.strftime("%Y-%m-%d %H:%M", time.localtime())
    if error.verify_code == NOT_YET:
        return "tls_clock", Text(
            f"控制台的证书尚未生效，而本机时钟为 {today}。请先校时（chronyd），再试一次。",
            f"The console's certificate is not valid yet, and this server's clock says {today}. Set it (chronyd), then "
            "try again.",
        )
    if error.verify_code == EXPIRED:
        return "tls_expired", Text(
            f"控制台的证书已过期（本机时钟为 {today}）。请核对时钟；若时钟无误，请在控制台续期证书（重启即可）。",
            f"The console's certificate has expired (this server's clock says {today}). Check the clock; where it is "
            "right, renew the certificate on the console: starting it anew does.",
        )
    if error.verify_code in OTHER_NAME:
        name = _name(error)
        return "tls_name", Text(
            f"控制台的证书中没有 {name}。请在控制台把 PUBLIC_REDIS_URL 设为证书中有的名称，或重启控制台以重签证书。",
            f"The console's certificate does not hold {name}. On the console, set PUBLIC_REDIS_URL to a name that it "
            "holds, or start it anew, so that it signs one that does.",
        )
    return "tls_issuer", Text(
        f"控制台的证书不是本机信任的机构签发的（{_brief(error)}）。请在控制台重新生成命令并加入一次，以取得新的 CA。",
        f"This server does not trust who signed the console's certificate ({_brief(error)}). Make a new command on the "
        "console and join again: that brings its authority.",
    )


def _name(error: ssl.SSLCertVerificationError) -> str:
    found = re.search(r"not valid for '([^']{1,253})'", error.verify_message or "")
    return found[1] if found else "?"


def _brief(error: ssl.SSLError) -> str:
    said = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return " ".join(said.split())[:120]
