"""The certificate that others see when they open the console."""

import ssl
from pathlib import Path

from django.conf import settings

from deployments.agent.fetch import pin_of


def fingerprint() -> str | None:
    """The pin of the public key behind PUBLIC_URL, as `curl --pinnedpubkey` takes it; None where it is plain HTTP."""
    if not settings.PUBLIC_CERTIFICATE:
        return None
    text = Path(settings.PUBLIC_CERTIFICATE).read_text()
    end = "-----END CERTIFICATE-----"
    first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
    return pin_of(ssl.PEM_cert_to_DER_cert(first))
