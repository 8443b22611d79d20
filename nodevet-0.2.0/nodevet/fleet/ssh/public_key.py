"""Public keys as SSH writes them: RFC 4253 section 6.6, OpenSSH's PROTOCOL.certkeys. Pure."""

import base64
import hashlib
import struct
from typing import NamedTuple

CERTIFICATE = "-cert-v01@openssh.com"


class PublicKey(NamedTuple):
    """A public key, or a certificate of one: its type, and then its numbers."""

    blob: bytes

    @property
    def type(self) -> str:
        """`ssh-ed25519`, `ssh-rsa-cert-v01@openssh.com`."""
        return string(self.blob)[0].decode("ascii", "replace")

    @property
    def base64(self) -> str:
        return base64.b64encode(self.blob).decode()

    @property
    def rsa_bits(self) -> int | None:
        """The size of an RSA key, 0 of a broken one; None for certificates and other types."""
        if self.type != "ssh-rsa":
            return None
        try:
            _, rest = string(string(self.blob)[1])  # the exponent
            return int.from_bytes(string(rest)[0], "big").bit_length()
        except ValueError:
            return 0

    @property
    def fingerprint(self) -> str:
        """`SHA256:` and the digest, as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest())
        return f"SHA256:{digest.decode().rstrip('=')}"

    def certifies(self, key: "PublicKey") -> bool:
        """Whether this is a certificate of `key`: type, nonce, and then the key's numbers."""
        if not self.type.endswith(CERTIFICATE):
            return False
        _, rest = string(string(self.blob)[1])  # the nonce
        return rest.startswith(string(key.blob)[1])


def read_line(text: str) -> PublicKey:
    """The key of a line `TYPE BASE64 [COMMENT]`. Raises ValueError."""
    words = text.split(None, 2)
    if len(words) < 2 or words[0].startswith("-"):
        raise ValueError("not a line of a public key")
    key = PublicKey(base64.b64decode(words[1], validate=True))
    string(key.blob)
    return key


def string(data: bytes) -> tuple[bytes, bytes]:
    """The first string of RFC 4251 section 5, and the rest. Raises ValueError."""
    if len(data) < 4:
        raise ValueError("a string of SSH is cut off")
    (size,) = struct.unpack_from(">I", data)
    if len(data) < 4 + size:
        raise ValueError("a string of SSH is cut off")
    return data[4 : 4 + size], data[4 + size :]


def write_string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
