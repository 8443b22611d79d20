"""A certificate authority that lasts as long as a test, and what it signs."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """PEM files."""

    file: Path
    key: Path


class Authority:
    """Its folder has all that it signs; `file` is its own certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._signed(self._name, self._key, authority=True))

    def certificate(self, name: str) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        made.file.write_bytes(self._signed(_name(name), key, authority=False))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
    ) -> bytes:
        now = datetime.now(timezone.utc)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
