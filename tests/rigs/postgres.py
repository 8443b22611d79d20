"""A PostgreSQL of the tests' own: Debian's, in a folder of its own, on a socket there, run by a
user without privileges; it ends with the tests, whatever becomes of them."""

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pg8000.dbapi
import pytest

USER = "nobody"
WAIT = 60.0  # seconds for it to begin or to end


class Postgres:
    """A server; it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = max(
            Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
        )
        self._server: subprocess.Popen[bytes] | None = None
        self._names = itertools.count()

    def make(self) -> None:
        words = ["--auth", "trust", "--username", "nodevet", "--no-sync", "--encoding", "UTF8"]
        command = self._as_user("initdb", "--pgdata", str(self.folder / "data"), *words)
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def start(self, *more: str) -> None:
        settings = ["listen_addresses=", "fsync=off", "max_connections=40", "shared_buffers=16MB"]
        settings += more
        options = [word for setting in settings for word in ("-c", setting)]
        place = ["-D", str(self.folder / "data"), "-k", str(self.folder)]
        log = (self.folder / "log").open("ab")
        self._server = subprocess.Popen(
            self._as_user("postgres", *place, *options), stdout=log, stderr=log, cwd="/"
        )
        log.close()
        end = time.monotonic() + WAIT
        ready = self._as_user("pg_isready", "-h", str(self.folder), "-q")
        while subprocess.run(ready, cwd="/").returncode:
            told = (self.folder / "log").read_text()
            assert self._server.poll() is None and time.monotonic() < end, told
            time.sleep(0.05)

    def stop(self) -> None:
        """Every session is cut off, as an administrator's restart does."""
        if self._server is not None:
            self._server.send_signal(2)
            self._server.wait(WAIT)
            self._server = None

    def connect(self, database: str) -> pg8000.dbapi.Connection:
        return pg8000.dbapi.connect(
            "nodevet", unix_sock=str(self.folder / ".s.PGSQL.5432"), database=database
        )

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"store{next(self._names)}"
        session = self.connect("postgres")
        session.autocommit = True
        session.cursor().execute(f"CREATE DATABASE {name}")
        session.close()
        return f"postgresql://nodevet@/{name}?host={self.folder}"

    def _as_user(self, program: str, *words: str) -> list[str]:
        drop = ["--reuid", USER, "--regid", "nogroup", "--clear-groups"]
        root = drop if os.geteuid() == 0 else []
        return ["setpriv", *root, "--pdeathsig", "INT", str(self._programs / program), *words]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="nodevet-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, USER)
    server = Postgres(folder)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
