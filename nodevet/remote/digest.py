"""SHA-256 by Python's own code: hashlib loads OpenSSL, which takes longer than reading a node."""

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MODULE = "_sha2" if sys.version_info >= (3, 12) else "_sha256"


def sha256(data: bytes) -> "Any":
    """The hash object of these bytes."""
    try:
        module = importlib.import_module(MODULE)
    except ImportError:
        module = importlib.import_module("hashlib")
    return module.sha256(data)
