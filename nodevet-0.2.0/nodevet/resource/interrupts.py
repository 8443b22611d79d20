"""The interrupts of a PCI function: the CPUs that each may go to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from nodevet.base.bounds import NumberList
from nodevet.evidence.lists import numbers
from nodevet.remote.pci_names import ADDRESS
from nodevet.resource.core import Action, ActionError, Kind, Resource, RestoreError, State

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

Places = Annotated[tuple[NumberList, ...], Meta(max_length=2048)]
"""The CPUs of each interrupt, in the order of their numbers."""
SCRIPT = (
    'for irq in $(ls "/sys/bus/pci/devices/$address/msi_irqs" | sort -n);'
    ' do [ $# -gt 0 ] || exit 1; echo "$1" >"/proc/irq/$irq/smp_affinity_list" || exit 1; shift;'
    " done; [ $# = 0 ]"
)


class PlaceInterrupts(Action, frozen=True, kw_only=True, tag="interrupts"):
    """Send the interrupts of a PCI function to these CPUs."""

    address: str
    cpus: Places

    @property
    def resource(self) -> Resource:
        return Resource(kind="interrupts", name=self.address)

    @property
    def label(self) -> str:
        return f"send interrupts of {self.address} to CPUs {'; '.join(dict.fromkeys(self.cpus))}"

    def command(self, *, seconds: float) -> "StringCommand":
        from pyinfra.api.command import QuoteString, StringCommand

        if not ADDRESS.match(self.address) or not all(map(numbers, self.cpus)):
            raise ActionError(f"{self.address!r}, {self.cpus!r}: not interrupts and their CPUs")
        words = map(QuoteString, self.cpus)
        return StringCommand(f"address={self.address};", "set --", *words, ";", SCRIPT)


class InterruptsKind(Kind):
    form = Places
    actions = (PlaceInterrupts,)
    is_setting = True

    def name_problem(self, name: str) -> str:
        return "" if ADDRESS.match(name) else "is not the address of a PCI function"

    def describe(self, state: State) -> str:
        return f"CPUs {'; '.join(dict.fromkeys(map(str, state.value)))}"

    def holds(self, action: Action, state: State) -> bool | None:
        if not isinstance(action, PlaceInterrupts):
            return None
        return [*(state.value or ())] == [*action.cpus]

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        if not before.exists:
            return ()
        if not isinstance(before.value, (list, tuple)):
            raise RestoreError(f"{before.resource.label}: {before.value!r} is not a list")
        return [PlaceInterrupts(address=before.resource.name, cpus=tuple(before.value))]


KIND = InterruptsKind()
