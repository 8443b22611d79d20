"""A journal that somebody changed: seen, and nothing but what the signed plan names is restored."""

import base64
import hashlib
import json
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from nodevet.fix import formats as fix_formats

CommandRig = Any
EVIL = "/etc/cron.d/evil"
CRON = base64.b64encode(b"* * * * * root id\n").decode()


def lines(rig: CommandRig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (rig.run / "journal.jsonl").read_text().splitlines()]


def write(rig: CommandRig, rows: list[dict[str, Any]], *, chained: bool) -> None:
    """The journal anew; `chained`: by somebody who knows how the lines hang together."""
    out: list[bytes] = []
    for row in rows:
        if chained and out:
            row["prev"] = hashlib.sha256(out[-1]).hexdigest()
        out.append(json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode())
    (rig.run / "journal.jsonl").write_bytes(b"".join(line + b"\n" for line in out))


def another_path(row: dict[str, Any]) -> None:
    row["seen"][0] = {
        "resource": {"kind": "file", "name": EVIL},
        "exists": True,
        "value": {"content": CRON, "mode": 0o644, "owner": 0, "group": 0},
    }


def one_more(row: dict[str, Any]) -> None:
    file = {"kind": "file", "name": EVIL}
    row["seen"].append({"resource": file, "exists": False})


def another_content(row: dict[str, Any]) -> None:
    row["seen"][0] |= {
        "exists": True,
        "value": {"content": CRON, "mode": 0o644, "owner": 0, "group": 0},
    }


def another_value(row: dict[str, Any]) -> None:
    row["seen"][3]["value"] = "madvise"


FORGED = [another_path, one_more, another_content, another_value]


@pytest.mark.parametrize("chained", [False, True], ids=["as it is", "chained anew"])
@pytest.mark.parametrize("forge", FORGED)
def test_r13_a_rollback_restores_only_what_the_signed_plan_says_was_there(
    rig: Callable[..., CommandRig], forge: Callable[[dict[str, Any]], None], chained: bool
) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    rows = lines(d)
    number = next(n for n, row in enumerate(rows) if row["is"] == "step-looked")
    host = rows[number]["step"].partition("/")[0]
    forge(rows[number])
    write(d, rows, chained=chained)
    before = d.w.boxes[host].everything()
    told = f"journal.jsonl:{number + 2}: does not match line {number + 1}"
    for command in (d.rollback, d.resume):
        said = command()
        assert said.code == (3 if chained else 2), said
        assert chained or told in said.err
    assert d.w.boxes[host].everything() == before
    if chained:
        other = ({"n1", "n2"} - {host}).pop()
        assert d.outcomes() == {host: "unknown", other: "rolled_back"}
        assert "look at them by hand" in d.report("table").out
        for form in fix_formats.formats():
            assert d.report(form).code == (2 if form == "nagios" else 3), form


@pytest.mark.parametrize(
    "row",
    [
        {"is": "step-looked", "step": "n9/pages/1", "seen": []},
        {"is": "action-begin", "step": "n1/pages/9", "action": 0},
        {"is": "action-begin", "step": "n1/pages/1", "action": 99},
        {"is": "host-begin", "host": "n9", "machine_id": "m", "boot_id": "b"},
        {"is": "host-end", "host": "n9", "outcome": "changed"},
    ],
)
def test_r13_journal_records_unknown_to_the_plan_are_reported(
    rig: Callable[..., CommandRig], row: dict[str, Any]
) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    rows = lines(d)
    write(d, [*rows[:-1], {"at": rows[-1]["at"], **row}, rows[-1]], chained=True)
    host = (row.get("host") or row["step"]).partition("/")[0]
    for command in (d.report, d.rollback, d.resume, d.report):
        said = command()
        assert said.code == 3 and host in said.out, said
    assert d.outcomes()[host] == "unknown"


def test_r13_a_journal_of_another_plan_is_refused(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    rows = lines(d)
    rows[0]["plan"] = "0" * 64
    write(d, rows, chained=True)
    said = d.report()
    assert said.code == 2 and "journal.jsonl:1: does not match the plan" in said.err


def test_r13_a_journal_with_a_removed_line_is_refused(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    rows = lines(d)
    for number in range(1, len(rows) - 1):
        write(d, rows[:number] + rows[number + 1 :], chained=False)
        said = d.rollback()
        assert said.code == 2 and f"journal.jsonl:{number + 1}: does not match" in said.err


def test_r13_a_plan_that_nobody_signed_is_not_rolled_back(rig: Callable[..., CommandRig]) -> None:
    """Whoever can write the folder writes a plan with its journal, and no signature."""
    d = rig("n1")
    assert d.apply().code == 0
    before = d.w.boxes["n1"].everything()
    text = (d.run / "plan.json").read_bytes().replace(b'"actual"', b'"actual" ')
    (d.run / "plan.json").write_bytes(text)
    rows = lines(d)
    for row in rows:
        if row["is"] == "run-begin":
            row["plan"] = hashlib.sha256(text).hexdigest()
    rows[0]["prev"] = hashlib.sha256(f"nodevet journal of {rows[0]['plan']}".encode()).hexdigest()
    write(d, rows, chained=True)
    assert d.report().code == 0, "it hangs together"
    said = d.rollback()
    assert said.code == 2 and "approvals of the plan are not valid now" in said.err, said
    assert d.w.boxes["n1"].everything() == before


def test_r13_a_plan_that_expired_is_rolled_back(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1")
    plan = d.plan()
    assert d.apply(plan=plan).code == 0
    late = json.loads(plan.read_text())["expires"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nodevet.fix.use.approved.datetime", After)
        assert After.now(None).isoformat() > late
        assert d.rollback().code == 0


class After(datetime):
    """A day later."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(timezone.utc) + timedelta(days=1)


def test_r13_a_reach_file_open_to_others_must_be_replaced_by_an_inventory(
    rig: Callable[..., CommandRig],
) -> None:
    """No node is visited, and no command of the stored ssh_config runs; -i replaces all of it."""
    d = rig("n1")
    assert d.apply().code == 0
    (d.run / "reach.json").chmod(0o666)
    d.reached.clear()
    for said in (d.rollback(), d.resume()):
        assert said.code == 2 and d.reached == set(), said
        assert "can be written by everyone" in said.err and "with -i" in said.err
    inventory = d.project / "hosts.yaml"
    inventory.write_text("nodevet: 1\nhosts:\n  n1: {}\n")
    told = json.loads((d.run / "reach.json").read_text())
    told["options"]["ssh_config"] = str(d.project / "no" / "such")
    (d.run / "reach.json").write_text(json.dumps(told))
    assert d.rollback("-i", inventory).code == 0
    assert d.outcomes() == {"n1": "rolled_back"}


def test_r13_a_stored_result_reveals_lines_cut_from_the_end_of_a_journal(
    rig: Callable[..., CommandRig],
) -> None:
    """What n2 came to is not in the journal any more: that is not "nothing was changed"."""
    d = rig("n1", "n2")
    assert d.apply(batch=1).code == 0
    rows = (d.run / "journal.jsonl").read_bytes().splitlines()
    d.cut(next(number for number, line in enumerate(rows) if b'"n2"' in line), killed=False)
    for said in (d.rollback(), d.report(), d.rollback()):
        assert said.code == 3 and "the end of the journal is missing" in said.out, said
    assert d.told()["unknown"] and d.outcomes() == {"n1": "unchanged", "n2": "unknown"}
    d.resume()
    said = d.rollback()
    assert said.code == 3 and "the end of the journal is missing" in said.out, said


def test_r13_a_new_approval_allows_a_rollback_after_a_signer_was_revoked(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    key = d.project / "bob"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    (d.project / "allowed_signers").write_text(f"bob {public}\n")
    said = d.rollback()
    assert said.code == 2 and "approvals of the plan are not valid now" in said.err, said
    assert f"nodevet approve --rollback {d.run}" in said.err
    assert d("approve", d.run, "--rollback", "--key", key, "--yes").code == 0
    assert d.rollback().code == 0
    assert d.outcomes() == {"n1": "rolled_back"}


def test_r2_the_report_of_a_run_without_an_end_names_the_command_and_the_run(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    d.cut(d.lines - 1)
    assert f"nodevet apply --resume {d.run}`" in d.report("table").out
