"""Keys and certificates in PEM: an authority of our own, what it signs, and whether a certificate serves a name.

Nothing here knows where files lie or what the site has set; console/tls.py does.
"""

import base64
import hashlib
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from console.names import is_address

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825  # the longest that Apple's systems take of an authority which a person added
EARLIER = timedelta(days=1)  # good for clients whose clock is behind
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True)
class Facts:
    """What one certificate says. `fingerprint` is SHA-256 of the whole, `pin` that of its key as curl takes it."""

    subject: str
    issuer: str
    names: list[str]
    not_before: datetime
    not_after: datetime
    fingerprint: str
    pin: str
    is_self_signed: bool


def new_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def authority(key_pem: str, name: str, *, now: datetime) -> str:
    """A certificate of an authority, signed by itself."""
    key, subject = _key(key_pem), _named(name)
    return _sign(_authority(subject, key.public_key(), subject, key, now + timedelta(days=AUTHORITY_DAYS), now), key)


def crossed(new_pem: str, old_pem: str, old_key_pem: str, *, now: datetime) -> str:
    """The authority `new_pem`, signed by the one before: who trusts that only trusts what the new one signs, too."""
    new, old, key = _load(new_pem), _load(old_pem), _key(old_key_pem)
    until = min(new.not_valid_after_utc, old.not_valid_after_utc)
    return _sign(_authority(new.subject, new.public_key(), old.subject, key, until, now), key)


def server(key_pem: str, ca_pem: str, ca_key_pem: str, names: Iterable[str], *, now: datetime) -> str:
    """A server's certificate for these names and addresses; it ends with its authority at the latest."""
    ca, ca_key, key = _load(ca_pem), _key(ca_key_pem), _key(key_pem)
    names = list(names)
    until = min(now + timedelta(days=SERVER_DAYS), ca.not_valid_after_utc)
    made = (
        _builder(_named(names[0][:64]), key.public_key(), ca.subject, ca_key, until, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
    )
    return _sign(made, ca_key)


def _authority(
    subject: x509.Name, public: object, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, until: datetime,
    now: datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        _builder(subject, public, issuer, signer, until, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )


def _builder(
    subject: x509.Name, public: object, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, until: datetime,
    now: datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    assert isinstance(public, ec.EllipticCurvePublicKey)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _alternative(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if is_address(name) else x509.DNSName(name)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> str:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _key(pem: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not of the kind that this console makes")
    return key


def _load(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def split(text: str) -> list[str]:
    """The certificates of a file, each as PEM, in order."""
    parts = text.split(BEGIN)[1:]
    return [f"{BEGIN}{part.split(END)[0]}{END}\n" for part in parts if END in part]


def read(pem: str) -> Facts:
    """What the first certificate of a PEM text says. Raises ValueError."""
    first = split(pem)
    if not first:
        raise ValueError("there is no certificate in it")
    found = _load(first[0])
    return Facts(
        subject=found.subject.rfc4514_string(),
        issuer=found.issuer.rfc4514_string(),
        names=_names(found),
        not_before=found.not_valid_before_utc,
        not_after=found.not_valid_after_utc,
        fingerprint=":".join(f"{byte:02X}" for byte in found.fingerprint(hashes.SHA256())),
        pin=_pin(found.public_key()),
        is_self_signed=found.subject == found.issuer,
    )


def pin_of_key(key_pem: str) -> str:
    """`sha256//…` of the public half of a key of ours."""
    return _pin(_key(key_pem).public_key())


def _pin(key: CertificatePublicKeyTypes) -> str:
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return "sha256//" + base64.b64encode(hashlib.sha256(spki).digest()).decode()


def _names(found: x509.Certificate) -> list[str]:
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


# ---------- as a client meets it ----------

EXPIRED, NOT_YET = 10, 9
OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH


def check_pair(chain: Path, key: Path) -> ssl.SSLContext:
    """A server's side of TLS with these two files. Raises ssl.SSLError or OSError where they do not go together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A key with a passphrase would ask for it on the terminal.
    context.load_cert_chain(chain, key, password=lambda: "")
    return context


def trouble(chain: Path, key: Path, ca: str, name: str) -> str:
    """What a client that trusts `ca` ("": what its system trusts) finds wrong under `name`; "" where all is well.

    One of: expired, not_yet, name, issuer. Raises as check_pair does.
    """
    near, far = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=ca or None).wrap_bio(near, far, server_hostname=name)
    server_side = check_pair(chain, key).wrap_bio(far, near, server_side=True)
    try:
        for _turn in range(4):
            for side in (client, server_side):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in OTHER_NAME:
            return "name"
        return {EXPIRED: "expired", NOT_YET: "not_yet"}.get(error.verify_code, "issuer")
    return ""
