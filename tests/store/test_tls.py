"""A store in a PostgreSQL that is reached over TLS."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_authority import Authority
from postgres import USER, Postgres

from nodevet.store import StoreError, open_store

# pg8000 leaves the socket of a refused handshake to the garbage collector
pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="nodevet-postgres-"))
    shutil.chown(made, USER)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "authority")


@pytest.fixture(scope="module")
def url(folder: Path, authority: Authority) -> Iterator[str]:
    """Of a server on loopback whose certificate is for another name."""
    signed = authority.certificate("db.example.com")
    shutil.chown(folder / "authority", USER)
    shutil.chown(signed.file, USER)
    shutil.chown(signed.key, USER)
    signed.key.chmod(0o600)
    address = f"127.88.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # whose port 5432 is free
    server = Postgres(folder)
    try:
        server.make()
        (folder / "data" / "pg_hba.conf").write_text(
            "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"
        )
        server.start(
            f"listen_addresses={address}",
            "ssl=on",
            f"ssl_cert_file={signed.file}",
            f"ssl_key_file={signed.key}",
        )
        yield f"postgresql://nodevet@{address}/postgres"
    finally:
        server.stop()


def test_the_server_accepts_only_connections_with_tls(url: str) -> None:
    """It takes sessions with TLS alone."""
    with pytest.raises(StoreError, match="no encryption"):
        open_store(f"{url}?sslmode=disable")
    for told in ("", "?sslmode=prefer", "?sslmode=require"):
        with open_store(url + told) as store:
            assert store.runs() == []


def test_only_the_configured_certificate_authority_is_trusted(
    url: str, authority: Authority, folder: Path
) -> None:
    open_store(f"{url}?sslmode=verify-ca&sslrootcert={authority.file}").close()
    wrong = Authority(folder / "other").file
    for mode in ("require", "verify-ca", "verify-full"):
        with pytest.raises(StoreError, match="certificate verify failed"):
            open_store(f"{url}?sslmode={mode}&sslrootcert={wrong}")


def test_a_certificate_of_another_name_is_refused(url: str, authority: Authority) -> None:
    for told in ("", "sslmode=verify-full&"):
        with pytest.raises(StoreError, match="certificate verify failed"):
            open_store(f"{url}?{told}sslrootcert={authority.file}")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (
            "sslmode=allow",
            "invalid sslmode=allow of the store; use one of: disable, prefer, require",
        ),
        (
            "sslrootcert=/no/such.pem",
            r"/no/such\.pem: cannot load certificates for the store: .*No such file",
        ),
        ("sslmode=require&sslcert=/etc/hostname", r"/etc/hostname: cannot load certificates"),
    ],
)
def test_mistakes_are_reported(told: str, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        open_store(f"postgresql://nodevet@127.0.0.1:1/store?{told}")
