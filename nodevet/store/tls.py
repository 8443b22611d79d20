"""TLS to PostgreSQL, in the words of its own library.

See libpq-ssl.html in PostgreSQL's documentation: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`.
"""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodevet.store.errors import StoreError

MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
FILES = ("sslrootcert", "sslcert", "sslkey")
QUERY = ("sslmode", *FILES)


def context(query: Mapping[str, Sequence[str] | str]) -> ssl.SSLContext | bool | None:
    """How a session is secured, as pg8000 takes it; None: if the server can, False: not at all.

    `require` meets anyone who has the address, unless an authority is named; `verify-ca` wants a
    certificate of an authority, `verify-full` one for this address. Raises StoreError.
    """
    told = {name: value for name in QUERY if isinstance(value := query.get(name), str)}
    mode = told.pop("sslmode", "verify-full" if told else "prefer")
    if mode not in MODES:
        raise StoreError(f"sslmode={mode} of the store is none of: {', '.join(MODES)}")
    if mode in ("disable", "prefer"):
        return None if mode == "prefer" else False
    for path in (told[name] for name in FILES if name in told):
        if Path(path).exists() and not Path(path).is_file():
            raise StoreError(f"{path}: not a regular file; name a file of certificates")
    try:
        made = ssl.create_default_context(cafile=told.get("sslrootcert"))
        if "sslcert" in told:
            made.load_cert_chain(told["sslcert"], told.get("sslkey"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(told.values())
        raise StoreError(f"{files}: no certificates to reach the store with: {error}") from error
    if mode != "verify-full":
        made.check_hostname = False
    if mode == "require" and "sslrootcert" not in told:
        made.verify_mode = ssl.CERT_NONE
    return made
