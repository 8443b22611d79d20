"""Write some hosts of a run, in one transaction."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, update

from nodevet.base import typed
from nodevet.model import HostReport, Status
from nodevet.store import blobs
from nodevet.store import schema as t
from nodevet.store.moments import LAST_SEEN
from nodevet.store.preparing import NewBlob, PreparedHost
from nodevet.store.records.model import Part
from nodevet.store.rows import OF_ANY_KIND, encoded, name_rows, plain
from nodevet.store.undoing import count_outcomes

_ENDED = (
    update(t.finding_span)
    .where(t.finding_span.c.id == bindparam("_id"))
    .values(last=LAST_SEEN, ended=bindparam("_ended"), end=bindparam("_end"))
)
_MOVED = update(t.host).where(t.host.c.id == bindparam("_id"))


class HostWriting:
    """The rows of some hosts of a run, for one transaction."""

    def __init__(
        self,
        connection: Connection,
        run_id: int,
        batch: Sequence[PreparedHost],
        new_pieces: Mapping[bytes, NewBlob],
    ) -> None:
        self._connection = connection
        self._run = run_id
        self._batch = batch
        self._new_pieces = new_pieces
        self._next: dict[str, int] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def write(self) -> None:
        batch = self._batch
        hosts = self._hosts()
        baselines = self._named(
            t.baseline,
            t.baseline.c.name,
            {plain(item.report.baseline) for item in batch} | {""},
        )
        groups = self._named(
            t.grouping, t.grouping.c.names, {_groups(item.report) for item in batch}
        )
        pieces = self._pieces()
        texts = self._texts()
        known_parts = self._parts()
        ended: list[dict[str, Any]] = []
        moved: list[dict[str, Any]] = []
        for item in batch:
            report, host = item.report, hosts[plain(item.report.host)]
            visit = self._id(t.visit)
            vetted = report.status is Status.VETTED
            boot = self._boot(item, host, visit)
            steady, volatile = pieces.get(item.steady), self._volatile(item)
            if item.kept is not None and item.evidence is None and vetted:
                steady, volatile = item.kept.steady, item.kept.volatile
            judged = pieces.get(item.judged)
            self._add(
                t.visit,
                id=visit,
                run=self._run,
                host=host,
                status=report.status.value,
                why=plain(report.why) or None,
                outcome=item.judged_outcome.value,
                seconds=report.seconds,
                at=item.at,
                arrived=bool(report.arrived),
                machine_id=plain(report.machine_id) if report.machine_id and not boot else None,
                boot=boot,
                baseline=baselines[plain(report.baseline)] if vetted else None,
                grouping=groups[_groups(report)] if report.groups else None,
                steady=steady,
                volatile=volatile,
                judged=judged,
                thinned=False,
                superseded=False,
            )
            self._spans(item, host, visit, baselines, texts)
            for ending in item.step.ended:
                ended.append({"_id": ending.span.id, "_ended": visit, "_end": ending.end.value})
            self._hardware(item, host, visit, known_parts)
            moved.append(self._moved(item, host, visit, boot, steady, volatile, judged))
        if ended:
            self._connection.execute(_ENDED, ended)
        for table in (t.blob, t.boot, t.visit, t.finding_span, t.part_name, t.place, t.counter):
            if rows := self._rows.get(table.name):
                self._connection.execute(insert(table), rows)
        self._connection.execute(_MOVED, moved)
        counts = Counter(item.judged_outcome.value for item in batch)
        count_outcomes(self._connection, self._run, counts)

    def _id(self, table: Table) -> int:
        if table.name not in self._next:
            most = self._connection.execute(select(func.max(table.c.id))).scalar()
            self._next[table.name] = most or 0
        self._next[table.name] += 1
        return self._next[table.name]

    def _add(self, table: Table, **values: Any) -> None:
        self._rows.setdefault(table.name, []).append(values)

    def _hosts(self) -> dict[str, int]:
        ids = {plain(item.report.host): item.host.id for item in self._batch if item.host}
        new = [
            {"id": self._id(t.host), "name": name}
            for name in (plain(item.report.host) for item in self._batch)
            if name not in ids
        ]
        if new:
            self._connection.execute(insert(t.host), new)
        return ids | {str(row["name"]): int(str(row["id"])) for row in new}

    def _named(self, table: Table, column: Any, names: set[str]) -> dict[str, int]:
        rows = self._connection.execute(select(table.c.id, column).where(column.in_(names)))
        ids = {name: number for number, name in rows}
        new = [{"id": self._id(table), column.name: name} for name in sorted(names - ids.keys())]
        if new:
            self._connection.execute(insert(table), new)
        return ids | {str(row[column.name]): int(str(row["id"])) for row in new}

    def _pieces(self) -> dict[bytes | None, int]:
        """The ids of all blobs of the batch. Writes new ones."""
        shas = {
            sha for item in self._batch for sha in (item.steady, item.judged) if sha is not None
        }
        new = self._new_pieces
        known = self._connection.execute(
            select(t.blob.c.id, t.blob.c.sha256).where(t.blob.c.sha256.in_(shas | new.keys()))
        )
        ids: dict[bytes | None, int] = {bytes(sha): number for number, sha in known}
        rows = []
        for sha, piece in new.items():
            if sha not in ids:
                ids[sha] = self._id(t.blob)
                rows.append(
                    {
                        "id": ids[sha],
                        "sha256": sha,
                        "base": piece.base,
                        "size": piece.size,
                        "data": piece.data,
                    }
                )
        if rows:
            self._connection.execute(insert(t.blob), rows)
        return ids

    def _parts(self) -> dict[str, int]:
        """The ids of all parts of the batch. Writes new ones, and updates others."""
        parts: dict[tuple[str, str], Part] = {}
        for item in self._batch:
            parts |= {(part.kind.value, plain(part.id)): part for part, _ in item.arrived}
        names = {name for _, name in parts}
        names |= {key[0] for item in self._batch for key in item.moved if key[0]}
        if not names:
            return {}
        ids: dict[str, int] = {}
        rows_by_part: dict[tuple[str, str], Any] = {}
        known = select(t.part).where(OF_ANY_KIND, t.part.c.name.in_(names))
        for row in self._connection.execute(known):
            ids[row.name] = row.id
            rows_by_part[row.kind, row.name] = row
        for (kind, name), part in parts.items():
            values = {
                "model": plain(part.model),
                "names": encoded([plain(item) for item in part.names]),
            }
            row_before = rows_by_part.get((kind, name))
            if row_before is None:
                ids[name] = number = self._id(t.part)
                self._add(t.part, id=number, kind=kind, name=name, **values)
            elif (row_before.model, bytes(row_before.names)) != (values["model"], values["names"]):
                number = row_before.id
                self._connection.execute(
                    update(t.part).where(t.part.c.id == number).values(**values)
                )
                names_before = typed.decode(row_before.names, tuple[str, ...])
                removed = [row["name"] for row in name_rows(number, name, names_before)]
                self._connection.execute(
                    delete(t.part_name).where(
                        t.part_name.c.name.in_(removed), t.part_name.c.part == number
                    )
                )
            else:
                continue
            for values in name_rows(number, name, part.names):
                self._add(t.part_name, **values)
        if rows := self._rows.pop(t.part.name, None):
            self._connection.execute(insert(t.part), rows)
        return ids

    def _hardware(
        self, item: PreparedHost, host: int, visit: int, known: Mapping[str, int]
    ) -> None:
        """Write places that began or ended, and counters that moved."""
        for part, slot in item.arrived:
            self._add(
                t.place,
                id=self._id(t.place),
                part=known[plain(part.id)],
                host=host,
                slot=plain(slot),
                first=visit,
                last=None,
                ended=None,
            )
        if item.left and item.host:
            last = item.host.vetted
            self._connection.execute(
                update(t.place).where(t.place.c.id.in_(item.left)).values(last=last, ended=visit)
            )
        for (of, name, subject), value in item.moved.items():
            self._add(
                t.counter,
                id=self._id(t.counter),
                host=host,
                part=known.get(of) if of else None,
                name=name,
                subject=subject if not of or of in known else f"{of} {subject}".strip(),
                value=value - (1 << 64) if value >= 1 << 63 else value,
                visit=visit,
            )

    def _volatile(self, item: PreparedHost) -> int | None:
        blob = item.volatile
        if blob is None:
            return None
        number = self._id(t.blob)
        self._add(t.blob, id=number, sha256=None, base=blob.base, size=blob.size, data=blob.data)
        return number

    def _texts(self) -> dict[bytes, int]:
        new: dict[bytes, bytes] = {}
        for item in self._batch:
            for opening in item.step.opened:
                if opening.finding is not None:
                    text = encoded(opening.finding)
                    new[blobs.sha_of(text)] = text
        if not new:
            return {}
        known = self._connection.execute(
            select(t.finding_text.c.id, t.finding_text.c.sha256).where(
                t.finding_text.c.sha256.in_(new)
            )
        )
        ids = {bytes(sha): number for number, sha in known}
        rows = []
        for sha, text in new.items():
            if sha not in ids:
                ids[sha] = self._id(t.finding_text)
                rows.append({"id": ids[sha], "sha256": sha, "finding": text})
        if rows:
            self._connection.execute(insert(t.finding_text), rows)
        return ids

    def _boot(self, item: PreparedHost, host: int, visit: int) -> int | None:
        report, row = item.report, item.host
        if not report.machine_id or not report.boot_id:
            return None
        machine_id, boot_id = plain(report.machine_id), plain(report.boot_id)
        if row and row.boot and (row.machine_id, row.boot_id) == (machine_id, boot_id):
            return int(row.boot)
        if row:
            known = self._connection.execute(
                select(t.boot.c.id).where(
                    t.boot.c.host == host,
                    t.boot.c.machine_id == machine_id,
                    t.boot.c.boot_id == boot_id,
                )
            ).scalar()
            if known:
                return int(known)
        boot = self._id(t.boot)
        self._add(t.boot, id=boot, machine_id=machine_id, boot_id=boot_id, host=host, visit=visit)
        return boot

    def _spans(
        self,
        item: PreparedHost,
        host: int,
        visit: int,
        baselines: Mapping[str, int],
        texts: Mapping[bytes, int],
    ) -> None:
        for opening in item.step.opened:
            since = visit if opening.after_plan else None  # the visits alone show no beginning
            if opening.inherits and opening.after:
                span = t.finding_span.c
                since = self._connection.execute(
                    select(func.coalesce(span.since, span.first)).where(span.id == opening.after.id)
                ).scalar()
            text = None
            if opening.finding is not None:
                text = texts[blobs.sha_of(encoded(opening.finding))]
            self._add(
                t.finding_span,
                id=self._id(t.finding_span),
                host=host,
                baseline=baselines[plain(item.report.baseline) if opening.check else ""],
                key=opening.key,
                check=plain(opening.check),
                verdict=opening.verdict.value,
                severity=opening.severity.value,
                said=opening.said,
                text=text,
                why=plain(opening.why),
                first=visit,
                since=since,
                last=None,
                ended=None,
                end=None,
                after_plan=plain(opening.after_plan) or None,
            )

    def _moved(
        self,
        item: PreparedHost,
        host: int,
        visit: int,
        boot: int | None,
        steady: int | None,
        volatile: int | None,
        judged: int | None,
    ) -> dict[str, Any]:
        """The row of the host after this visit. The next comparison does not use evidence that was
        not judged.
        """
        row, report = item.host, item.report
        machine = plain(report.machine_id) if report.machine_id else None
        same = row is not None and machine in (None, row.machine)
        vetted = report.status is Status.VETTED
        fresh = item.evidence is not None
        is_read = fresh and vetted
        return {
            "_id": host,
            "visit": visit,
            "vetted": visit if vetted else row and row.vetted,
            "machine": machine or (row and row.machine),
            "machine_from": (row and row.machine_from) if same else visit,
            "boot": boot or (row and row.boot),
            "keyframe": volatile if item.keyframe else row and row.keyframe,
            "keyframe_at": item.at if item.keyframe else row and row.keyframe_at,
            "steady": steady if is_read else None if fresh else row and row.steady,
            "judged": judged or (row and row.judged),
            "counted": item.counted if is_read else None if fresh else row and row.counted,
        }


def _groups(report: HostReport) -> str:
    return plain(msgspec.json.encode([plain(group) for group in report.groups]).decode())
