"""When a NIC's link went down and came back, by its driver's log.

Sources, below drivers/net/ethernet of the kernel tree: mellanox/mlx5/core/en_main.c
(mlx5e_update_carrier), mellanox/mlx5/core/main.c (the firmware's version, when the driver takes the
card) and broadcom/bnxt/bnxt.c (bnxt_report_link). Both log nothing when an interface is turned
off. When it is turned on they log `down` until its link has trained.

Other drivers cannot be used. ice and i40e (ice_link_event, i40e_link_event), e1000e, and drivers on
phylib log the same for a lost link and an interface that was turned off. ena and mlx5's InfiniBand
ports (mellanox/mlx5/core/ipoib) log nothing. mlx5's `Port module event` is about cables, and
rate-limited.
"""

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.kernel_hardware import format_address
from nodevet.remote.probe.kernel_nics import DEVICE
from nodevet.remote.probe.patterns import Pattern

MOST = 1024  # NICs
OUTAGES = 64  # of one NIC
UP, DOWN, TAKEN = "up", "down", "taken"  # TAKEN: the driver took the card, or took it again
UNKNOWN = "unseen"  # before a log that does not begin at boot
# a network device's name: without space, slash and colon (dev_valid_name)
NAMED = r" ([^\s:/]{1,15})(?: \(\w{1,20}\))?: "
# driver -> its whole lines
WORDS = {
    "mlx5_core": {
        DOWN: NAMED + r"Link down\Z",
        UP: NAMED + r"Link up\Z",
        TAKEN: r"(): firmware version: [0-9]{1,5}\.[0-9]{1,5}\.[0-9]{1,5}\Z",
    },
    "bnxt_en": {
        DOWN: NAMED + r"NIC Link is Down(?: \([\w ]{1,40}\))?\Z",
        UP: NAMED + r"NIC Link is Up, (?:speed unknown|[0-9]{1,10} Mbps (?:\([\w ]{1,20}\) )?"
        r"(?:full|half) duplex, Flow control: (?:none|ON - [a-z &]{1,30}))\Z",
    },
}  # fmt: skip
DRIVERS = tuple("{} ".format(driver) for driver in WORDS)
LINES = {
    driver: [(what, Pattern("{} {}{}".format(driver, DEVICE, rest)))
             for what, rest in sorted(words.items())]
    for driver, words in WORDS.items()
}  # fmt: skip


class LoggedLink(object):
    """The link of one NIC, by the log."""

    def __init__(self, state: "str | None" = None) -> None:
        self.interface: "str | None" = None
        self.state = state  # UP, DOWN, UNKNOWN, or None: not logged yet
        self.lost_s: "float | None" = None  # when it went down, if it was up before
        self.count = 0
        # (down, up); no later one is as long
        self.outages: "list[tuple[float | None, float]]" = []
        # first line, last line before UP, first UP
        self.opening: "list[tuple[float, str]]" = []
        self.full = False  # some outages were dropped

    def take(self, seconds: float, event: str, interface: str) -> None:
        self.interface = interface or self.interface
        self.add_opening(seconds, event)
        self.change_state(seconds, event)

    def add_opening(self, seconds: float, event: str) -> None:
        """Keep the lines that continue an earlier part's outage and state."""
        if not self.came_up:
            keep = 2 if event == UP else 1
            self.opening[keep:] = [(seconds, event)]

    @property
    def came_up(self) -> bool:
        return any(event == UP for _, event in self.opening)

    def change_state(self, seconds: float, event: str) -> None:
        if event == UP:
            if self.lost_s is not None or self.state == UNKNOWN:
                self.add(self.lost_s, seconds)
            self.lost_s = None
        elif event == DOWN and self.state in (UP, UNKNOWN):
            self.lost_s = seconds
        if event != TAKEN:
            self.state = event
        elif self.lost_s is None:
            self.state = None

    def add(self, down: "float | None", up: float) -> None:
        up = up if down is None else max(down, up)  # lines of several CPUs may be out of order
        self.count += 1
        while self.outages and duration(*self.outages[-1]) <= duration(down, up):
            self.outages.pop()
        self.full = self.full or len(self.outages) >= OUTAGES
        if not self.full:
            self.outages.append((down, up))

    def merge(self, later: "LoggedLink") -> "LoggedLink":
        """Add a later part of the log about the same NIC."""
        self.interface = later.interface or self.interface
        for seconds, event in later.opening:
            self.add_opening(seconds, event)
            self.change_state(seconds, event)
        for down, up in later.outages:
            self.add(down, up)
        self.count += later.count - len(later.outages)
        self.full = self.full or later.full
        if later.came_up:
            self.state, self.lost_s = later.state, later.lost_s
        return self


def duration(down: "float | None", up: float) -> float:
    """Seconds that a link was down; infinite if it was down when the log began."""
    return float("inf") if down is None else up - down


class LoggedLinks(object):
    """The links of all NICs in a log."""

    def __init__(self) -> None:
        self.links_by_address: "dict[str, LoggedLink]" = {}
        self.unread = ""  # why some are unknown

    def take(self, seconds: "float | None", text: str) -> bool:
        """Take a message; False if it is not about a link."""
        if not text.startswith(DRIVERS):
            return False
        for event, pattern in LINES[text.partition(" ")[0]]:
            match = pattern.match(text)
            if match:
                self.add(seconds, event, format_address(match), match.group(5))
                return True
        return False

    def add(self, seconds: "float | None", event: str, address: str, interface: str) -> None:
        if seconds is None:
            self.unread = "a line about a link has no time"
        elif address not in self.links_by_address and len(self.links_by_address) >= MOST:
            self.unread = "there are more than {} NICs".format(MOST)
        else:
            self.links_by_address.setdefault(address, LoggedLink()).take(seconds, event, interface)

    def merge(self, later: "LoggedLinks") -> "LoggedLinks":
        """Add a later part of the log."""
        for address, link in later.links_by_address.items():
            self.links_by_address[address] = self.links_by_address.get(address, LoggedLink()).merge(
                link
            )
        self.unread = self.unread or later.unread
        return self

    def records(self, begins: bool) -> "list[Reading]":
        """A record of each NIC with lines about its link. Raises ValueError.

        `begins`: whether the log begins at boot.
        """
        if self.unread:
            raise ValueError(self.unread)
        links = {
            address: link if begins else LoggedLink(UNKNOWN).merge(link)
            for address, link in self.links_by_address.items()
        }
        return [record(address, link) for address, link in sorted(links.items()) if link.interface]


def record(address: str, link: "LoggedLink") -> "Reading":
    row = Reading(bus_id=address, interface=link.interface, count=link.count)
    if link.state in (UP, DOWN):
        row["up"] = link.state == UP
    else:
        row.fail("up", "the log does not say it")
    row["outages"] = [outage(*times) for times in link.outages]
    if link.full:
        row.fail("outages", "there are too many that no later one outlasts")
    return row


def outage(down: "float | None", up: float) -> "Reading":
    row = Reading(down_s=down, up_s=up)
    if down is None:
        row.fail("down_s", "it went down before the log begins")
    return row
