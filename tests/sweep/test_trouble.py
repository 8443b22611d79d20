"""A store or a disk that gives out in the middle of a sweep: reports are written, it is said once,
the exit code is 2, and the next sweep tells what this one could not record."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from answering_fleet import HOSTS, AnsweringFleet, capped, waits_for
from postgres import Postgres

pytestmark = pytest.mark.timeout(300)


def swept_with_a_break(
    fleet: AnsweringFleet, recorded: Callable[[], bool], give_out: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    """A sweep in which the store gives out before the last host answers."""
    late = waits_for(fleet, "gpu006", "go")
    words = [sys.executable, "-m", "nodevet", "sweep", "-i", late]
    with subprocess.Popen(words, cwd=fleet.folder, stdout=-1, stderr=-1, text=True) as sweep:
        while not recorded():
            assert sweep.poll() is None
            time.sleep(0.05)
        give_out()
        (fleet.folder / "go").touch()
        out, err = sweep.communicate(timeout=120)
    assert "Traceback" not in err
    return subprocess.CompletedProcess(words, sweep.returncode, out, err)


def test_postgresql_is_restarted_in_the_middle(fleet: AnsweringFleet, postgres: Postgres) -> None:
    url = postgres.database()
    fleet.settings('outputs = { json = "last.json" }\n', head=f'store = "{url}"\n')
    assert fleet.run("sweep").returncode == 0
    fleet.night({"gpu003": capped})

    def recorded() -> bool:
        with closing(postgres.connect(urlsplit(url).path[1:])) as session:
            cursor = session.cursor()
            cursor.execute("select count(*) from run where state = 'running'")
            return cursor.fetchone() == [1]

    def restart() -> None:
        postgres.stop()
        postgres.start()

    done = swept_with_a_break(fleet, recorded, restart)
    assert "gpu003 GPU 0-7" in done.stdout
    assert len(json.loads((fleet.folder / "last.json").read_text())["hosts"]) == len(HOSTS)
    if done.returncode == 1:  # nodevet wrote to the store only after it was back
        assert re.fullmatch(r"(nodevet: --since ignored: .+\n)?", done.stderr)
    else:
        assert (done.returncode, done.stderr.count("a part of this run is not recorded")) == (2, 1)
        again = fleet.run("sweep", "--fail-on", "new")
        assert (again.returncode, "gpu003 GPU 0-7  NEW" in again.stdout) == (1, True)
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare, for mounts of its own",
)
def test_the_disk_is_full(fleet: AnsweringFleet) -> None:
    """The store is on a file system of its own that has no room for a night."""
    (fleet.folder / "full").mkdir()
    head = 'store = "sqlite:///full/h.sqlite"\n'
    fleet.settings('outputs = { json = "last.json" }\n', head=head)
    assert fleet.run("sweep").returncode == 0
    used = sum(each.stat().st_size for each in (fleet.folder / "full").iterdir())
    fleet.night({"gpu003": capped})
    script = f"""
        cp -a full kept && mount -t tmpfs -o size={used // 1024 + 60}k tmpfs full
        cp -a kept/. full && {sys.executable} -m nodevet sweep; code=$?
        cp -a full/. kept; exit $code"""
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        cwd=fleet.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert (done.returncode, "gpu003 GPU 0-7" in done.stdout) == (2, True)
    assert done.stderr.count("this run is not ") == 1
    assert "room" in done.stderr
    (fleet.folder / "full").rename(fleet.folder / "before")
    (fleet.folder / "kept").rename(fleet.folder / "full")
    told = json.loads((fleet.folder / "last.json").read_text())
    failing = [each["host"] for each in told["hosts"] if "fail" in str(each["findings"])]
    assert failing == ["gpu003"]
    again = fleet.run("sweep", "--fail-on", "new")
    assert (again.returncode, "gpu003 GPU 0-7  NEW" in again.stdout) == (1, True)
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0


def test_old_evidence_goes_after_a_sweep(fleet: AnsweringFleet) -> None:
    fleet.settings(head="[retention]\ndaily = 3\nweekly = 0\nmonthly = 0\n")
    store = Path(fleet.state) / "nodevet/history.sqlite"

    def kept() -> list[int]:
        with closing(sqlite3.connect(store)) as reader:
            asked = "select count(volatile) from visit group by run order by run"
            return [row[0] for row in reader.execute(asked)]

    fleet.run("sweep")
    fleet.run("sweep")
    with closing(sqlite3.connect(store)) as other:
        other.execute("update visit set at = at - 10 * 86400 where run = 1")
        other.commit()
    fleet.settings("retention = false\n", head="[retention]\ndaily = 3\nweekly = 0\nmonthly = 0\n")
    fleet.run("sweep")
    assert kept() == [6, 6, 6]
    fleet.settings(head="[retention]\ndaily = 3\nweekly = 0\nmonthly = 0\n")
    fleet.night()
    assert fleet.run("sweep").stderr == ""
    assert kept() == [0, 6, 6, 6]
    assert "nightly" in fleet.run("runs").stdout  # what was found stays


def test_a_sweep_reports_even_if_the_store_is_damaged(fleet: AnsweringFleet) -> None:
    fleet.settings(head='store = "sqlite:///h.sqlite"\n')
    assert fleet.run("sweep").returncode == 0
    fleet.night({"gpu003": capped})
    file = fleet.folder / "h.sqlite"
    with closing(sqlite3.connect(file)) as store:
        store.execute("pragma wal_checkpoint(truncate)")
        (size,) = store.execute("pragma page_size").fetchone()
        asked = "select rootpage from sqlite_master where name = 'run'"
        (page,) = store.execute(asked).fetchone()
    with file.open("r+b") as raw:
        raw.seek((page - 1) * size)
        raw.write(b"\xff" * size)
    done = fleet.run("sweep")
    assert (done.returncode, "gpu003 GPU 0-7" in done.stdout) == (2, True)
    assert done.stderr.count("a part of this run is not recorded") == 1
    assert "it is damaged; restore a copy" in done.stderr
