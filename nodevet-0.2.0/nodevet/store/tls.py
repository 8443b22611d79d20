"""TLS to PostgreSQL, with the parameters of libpq: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`.

See libpq-ssl.html in the documentation of PostgreSQL.
"""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodevet.store.errors import StoreError

MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
FILES = ("sslrootcert", "sslcert", "sslkey")
QUERY = ("sslmode", *FILES)


def context(query: Mapping[str, Sequence[str] | str]) -> ssl.SSLContext | bool | None:
    """The `ssl_context` of pg8000. None: TLS if the server offers it. False: no TLS.

    `require` checks no certificate unless `sslrootcert` names an authority; `verify-ca` checks the
    authority; `verify-full` also checks the host name. Raises StoreError.
    """
    options = {name: value for name in QUERY if isinstance(value := query.get(name), str)}
    mode = options.pop("sslmode", "verify-full" if options else "prefer")
    if mode not in MODES:
        raise StoreError(f"invalid sslmode={mode} of the store; use one of: {', '.join(MODES)}")
    if mode in ("disable", "prefer"):
        return None if mode == "prefer" else False
    for path in (options[name] for name in FILES if name in options):
        if Path(path).exists() and not Path(path).is_file():
            raise StoreError(f"{path}: not a regular file; name a file of certificates")
    try:
        tls = ssl.create_default_context(cafile=options.get("sslrootcert"))
        if "sslcert" in options:
            tls.load_cert_chain(options["sslcert"], options.get("sslkey"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(options.values())
        raise StoreError(f"{files}: cannot load certificates for the store: {error}") from error
    if mode != "verify-full":
        tls.check_hostname = False
    if mode == "require" and "sslrootcert" not in options:
        tls.verify_mode = ssl.CERT_NONE
    return tls
