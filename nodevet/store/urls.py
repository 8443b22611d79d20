"""URLs of stores. Pure but for the user's home."""

import os
import re

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from nodevet.base.files import state_folder
from nodevet.base.printable import brief
from nodevet.store import tls
from nodevet.store.errors import StoreError

POSTGRES = ("postgresql", "postgres", "postgresql+pg8000")
QUERY = frozenset({"host", "port", *tls.QUERY})


def default_url() -> str:
    """The URL of the default store, in the user's state directory. Raises StoreError."""
    try:
        return f"sqlite:///{state_folder() / 'history.sqlite'}"
    except OSError as error:
        raise StoreError(f"{error.strerror}, or name a store with --store") from error


def parse_url(url: str) -> URL:
    """The parts of the URL of a store. Raises StoreError if it is not a valid one."""
    if path := _intended_path(url):
        raise StoreError(
            f"the store {brief(url)!r} is a path, but a URL is needed: type sqlite:///{path}"
        )
    try:
        parts = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise StoreError(
            f"--store {_mask(url)!r} is not a URL of a store: sqlite:///PATH or postgresql://USER@HOST/DB"
        ) from error
    if parts.drivername == "sqlite":
        is_server = parts.host or parts.username or parts.query
        if not parts.database or parts.database == ":memory:" or is_server:
            raise StoreError(
                f"--store {_mask(url)!r} names no file: type sqlite:///PATH, or sqlite:////ABSOLUTE/PATH"
            )
        return parts
    if parts.drivername in POSTGRES:
        if parts.host and "@" in parts.host:
            raise StoreError(
                f"--store {_mask(url)!r} has more than one @: write %40 for an @ in a password"
            )
        if not parts.username:
            raise StoreError(f"--store {_mask(url)!r} names no user: postgresql://USER@HOST/DB")
        if unknown := sorted(set(parts.query) - QUERY):
            raise StoreError(
                f"--store {_mask(url)!r} takes no {', '.join(unknown)}; after the question "
                "mark it takes host=/FOLDER and port=NUMBER for a socket, and for TLS sslmode, "
                "sslrootcert, sslcert and sslkey, as psql does"
            )
        return parts.set(drivername="postgresql+pg8000")
    raise StoreError(
        f"--store {parts.drivername}://…: nodevet keeps its history in SQLite or PostgreSQL: "
        "sqlite:///PATH or postgresql://USER@HOST/DB"
    )


def _intended_path(url: str) -> str:
    """The path that a user means by a path or by an incomplete URL; empty if it may be a URL."""
    scheme, colon, rest = url.partition(":")
    is_url = rest.startswith("//")
    if "@" in url or (colon and scheme not in ("sqlite", "file")):
        return ""
    if scheme == "sqlite" and is_url and not rest.startswith("///~"):  # only a shell knows a home
        return ""
    path = (rest.lstrip("/") if "~" in rest else rest.removeprefix("//")) if colon else url.strip()
    return os.path.expanduser(path)  # noqa: PTH111  (a user without a home is no error here)


def _mask(text: str) -> str:
    """A text for messages, cut where an invalid URL may hold a password: before an @, after a ?."""
    head, at_sign, tail = text.partition("?")[0].rpartition("@")
    tail = re.sub(r":[^/]*", "", tail, count=1) if at_sign else tail  # anything but a port
    return f"***@{tail}" if at_sign else head + tail


def url_text(url: URL) -> str:
    """The URL of a store without its password, or the path of a file."""
    if url.drivername == "sqlite":
        return str(url.database)
    plain = url.set(drivername="postgresql", query={})
    return plain.render_as_string(hide_password=True)
