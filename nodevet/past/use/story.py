"""Read the story of a host, or the passport of a part, from the store."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.base.problems import did_you_mean
from nodevet.checking.facts import facts_of
from nodevet.evidence.document import EvidenceError, open_evidence
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.nvme import Nvme
from nodevet.model import HostFacts
from nodevet.past.passport import Passport, passport
from nodevet.past.story import HostRecords, HostStory, host_story
from nodevet.store.records.model import Part, PartKind, PartPlace

if TYPE_CHECKING:
    from nodevet.store import Store

NAMED = ("infiniband", "nvme")  # the sections that name parts on their host


def find_story(store: "Store", text: str) -> HostStory | Passport:
    """The story of a host, else the passport of a part: by UUID, serial number, GUID, or the
    beginning of one. Raises UserError if the store knows neither."""
    if text in store.hosts():
        return find_host(store, text)
    return find_passport(store, text, hosts=True)


def find_host(store: "Store", host: str, started: Mapping[str, str] | None = None) -> HostStory:
    """The story of a host that the store knows. `started`: when each run did, if that is known."""
    visits = store.visits_of(host)[::-1]
    places = store.places(host=host)
    elsewhere = [
        place
        for part in {
            place.part.id: place.part for place in places if _has_moved(place, places)
        }.values()
        for place in store.places(part=part.id)
        if place.host != host
    ]
    return host_story(
        host,
        HostRecords(
            visits=visits,
            started=started or {run.id: run.started for run in store.runs()},
            spans=list(store.spans(host=host)),
            places=places,
            elsewhere=elsewhere,
            actions=store.actions(host),
            proofs=store.proofs(host),
            plans=store.plans(host),
            fix_runs=store.fix_runs(host=host),
            incidents=store.incidents(host),
            facts=_facts(store, host),
        ),
    )


def _has_moved(place: PartPlace, places: list[PartPlace]) -> bool:
    """Whether a part came after the first run, or left: only such a part was also elsewhere."""
    return not place.open or place.first.run != places[0].first.run


def _facts(store: "Store", host: str) -> HostFacts | None:
    """The facts of a host by its newest evidence; None if that cannot be read."""
    evidence = store.last_evidence(host)
    try:
        return facts_of(open_evidence(evidence[1])) if evidence else None
    except EvidenceError:
        return None


def find_passport(store: "Store", text: str, *, hosts: bool = False) -> Passport:
    """The passport of a part. `hosts`: the text may also be meant as a host. Raises UserError if it
    names no part, or several."""
    matches = store.parts(text)
    if not matches:
        known = store.hosts() if hosts else []
        noun = "host or part" if hosts else "part"
        hint = did_you_mean(
            text, known, "name a part by UUID, GUID or serial number, or by the beginning of one"
        )
        raise UserError(f"{store.name}: no {noun} {brief(text)!r} is known; {hint}")
    if len(matches) > 1:
        listed = ", ".join(f"{match.kind.value} {brief(match.id)}" for match in matches[:4])
        more = f" and {len(matches) - 4} more" if len(matches) > 4 else ""
        raise UserError(f"{brief(text)!r} is the beginning of several parts: {listed}{more}")
    return part_passport(store, matches[0])


def part_passport(store: "Store", part: Part) -> Passport:
    """The passport of a part that the store knows."""
    places = store.places(part=part.id)
    part_names = [_names_in(store, place) for place in places]
    hosts_of_part = sorted({place.host for place in places})
    return passport(
        part,
        places,
        [span for host in hosts_of_part for span in store.spans(host=host) if span.check],
        store.points(part=part.id),
        [action for host in hosts_of_part for action in store.actions(host)],
        names={
            (place.host, place.slot): names for place, names in zip(places, part_names, strict=True)
        },
        proofs=[proof for host in hosts_of_part for proof in store.proofs(host)],
    )


def _names_in(store: "Store", place: PartPlace) -> frozenset[str]:
    """The names of a part on its host: `mlx5_3`."""
    if place.part.kind not in (PartKind.NIC, PartKind.NVME):
        return frozenset()
    for _, document in store.evidence(place.first.run, hosts=[place.host], sections=NAMED):
        if document is not None:
            try:
                evidence = open_evidence(document)
            except EvidenceError:
                return frozenset()
            rdma = evidence[Infiniband].data or Infiniband()
            nvme = evidence[Nvme].data or Nvme()
            device_names = {
                device.name for device in rdma.devices or () if device.bus_id == place.slot
            }
            return frozenset(
                device_names
                | {device.name for device in nvme.controllers or () if device.address == place.slot}
            )
    return frozenset()
