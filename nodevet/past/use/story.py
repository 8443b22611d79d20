"""The story of a host or of a part, and a part's passport, from what is recorded."""

from typing import TYPE_CHECKING

from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.base.problems import did_you_mean
from nodevet.checking.facts import facts_of
from nodevet.evidence.document import EvidenceError, opened
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.nvme import Nvme
from nodevet.model import HostFacts
from nodevet.past.passport import Passport, passport
from nodevet.past.story import HostStory, HostTold, host_story
from nodevet.store.records.model import PartKind, PartPlace

if TYPE_CHECKING:
    from nodevet.store import Store

FACTS = ("host", "gpu", "memory", "pci")
NAMED = ("infiniband", "nvme")  # sections that say how parts are called on their host


def story_found(store: "Store", text: str) -> HostStory | Passport:
    """Of a host, or else of a part: UUID, serial number, GUID, or the beginning of one. Raises
    UserError if nothing is known of it."""
    if text in store.hosts():
        return host_found(store, text)
    return passport_found(store, text, hosts=True)


def host_found(store: "Store", host: str) -> HostStory:
    """The story of a host that anything is recorded of."""
    visits = store.visits_of(host)[::-1]
    places = store.places(host=host)
    elsewhere = [
        place
        for part in {
            place.part.id: place.part for place in places if _moved(place, places)
        }.values()
        for place in store.places(part=part.id)
        if place.host != host
    ]
    return host_story(
        host,
        HostTold(
            visits=visits,
            started={run.id: run.started for run in store.runs()},
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


def _moved(place: PartPlace, places: list[PartPlace]) -> bool:
    """Whether a part came after the first ones, or has gone: only then it was elsewhere, too."""
    return not place.open or place.first.run != places[0].first.run


def _facts(store: "Store", host: str) -> HostFacts | None:
    """What it is, by what it said last; None if that is nothing that can be read."""
    found = store.last_evidence(host)
    try:
        return facts_of(opened(found[1])) if found else None
    except EvidenceError:
        return None


def passport_found(store: "Store", text: str, *, hosts: bool = False) -> Passport:
    """All that is remembered of a part. `hosts`: hosts are a possibility, too."""
    found = store.parts(text)
    if not found:
        known = store.hosts() if hosts else []
        what = "host or part" if hosts else "part"
        hint = did_you_mean(
            text, known, "a part is named by UUID, GUID or serial number, or the beginning of one"
        )
        raise UserError(f"{store.name}: no {what} {brief(text)!r} is known; {hint}")
    if len(found) > 1:
        listed = ", ".join(f"{each.kind.value} {each.id}" for each in found[:4])
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        raise UserError(f"{brief(text)!r} is the beginning of several parts: {listed}{more}")
    part = found[0]
    places = store.places(part=part.id)
    named = [_named(store, place) for place in places]
    stayed = sorted({place.host for place in places})
    return passport(
        part,
        places,
        [span for host in stayed for span in store.spans(host=host) if span.check],
        store.points(part=part.id),
        [action for host in stayed for action in store.actions(host)],
        names={(place.host, place.slot): names for place, names in zip(places, named, strict=True)},
        proofs=[proof for host in stayed for proof in store.proofs(host)],
    )


def _named(store: "Store", place: PartPlace) -> frozenset[str]:
    """What a part in a place is called there: `mlx5_3`."""
    if place.part.kind not in (PartKind.NIC, PartKind.NVME):
        return frozenset()
    for _, document in store.evidence(place.first.run, hosts=[place.host], sections=NAMED):
        if document is not None:
            try:
                evidence = opened(document)
            except EvidenceError:
                return frozenset()
            rdma = evidence[Infiniband].data or Infiniband()
            nvme = evidence[Nvme].data or Nvme()
            names = {each.name for each in rdma.devices or () if each.bus_id == place.slot}
            return frozenset(
                names | {each.name for each in nvme.controllers or () if each.address == place.slot}
            )
    return frozenset()
