"""SHA-256 by Python's own code: hashlib loads OpenSSL, which takes longer than reading a node."""

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def sha256(data: bytes) -> "Any":
    """The hash object of these bytes."""
    for name in ("_sha2", "_sha256"):  # since Python 3.12, and before
        try:
            return importlib.import_module(name).sha256(data)
        except ImportError:
            continue
    return importlib.import_module("hashlib").sha256(data)
