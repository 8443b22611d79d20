"""When the link of a network card went down and came back, by what its driver logs.

Sources, below drivers/net/ethernet of the kernel tree: mellanox/mlx5/core/en_main.c
(mlx5e_update_carrier), mellanox/mlx5/core/main.c (the firmware's version, when the driver takes the
card) and broadcom/bnxt/bnxt.c (bnxt_report_link). Both log nothing when an interface is turned
off. When it is turned on they log `down` until its link has trained.

Not here, since their lines do not tell a lost link from an interface that was turned off: ice and
i40e (ice_link_event, i40e_link_event), e1000e, and drivers on phylib. Not here, since they log
nothing: ena, and the InfiniBand ports of mlx5 (mellanox/mlx5/core/ipoib). mlx5's `Port module
event` is about cables, and rate-limited.
"""

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.kernel_hardware import spelled
from nodevet.remote.probe.kernel_nics import DEVICE
from nodevet.remote.probe.patterns import Pattern

MOST = 1024  # NICs
OUTAGES = 64  # of one NIC
UP, DOWN, TAKEN = "up", "down", "taken"  # TAKEN: the driver took the card, or took it again
UNSEEN = "unseen"  # before a log that does not begin at boot
# of a network device, in which neither a space, a slash nor a colon may be (dev_valid_name)
NAMED = r" ([^\s:/]{1,15})(?: \(\w{1,20}\))?: "
# driver -> what it logs, each a whole line
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
    """What a log says of the link of one NIC."""

    def __init__(self, state: "str | None" = None) -> None:
        self.interface: "str | None" = None
        self.state = state  # UP, DOWN, UNSEEN, or None: the driver has not said it yet
        self.lost_s: "float | None" = None  # when it went down, if it was up before
        self.count = 0
        # (when it went down, when it came back); no later one is as long
        self.outages: "list[tuple[float | None, float]]" = []
        # its first line, the last before it is up, the first that says so
        self.opening: "list[tuple[float, str]]" = []
        self.full = False  # there were more outages than are kept

    def take(self, seconds: float, what: str, interface: str) -> None:
        self.interface = interface or self.interface
        self.open(seconds, what)
        self.step(seconds, what)

    def open(self, seconds: float, what: str) -> None:
        """Keep what decides how the first outage and the state of an earlier part go on."""
        if not self.came_up:
            kept = 2 if what == UP else 1
            self.opening[kept:] = [(seconds, what)]

    @property
    def came_up(self) -> bool:
        return any(what == UP for _, what in self.opening)

    def step(self, seconds: float, what: str) -> None:
        if what == UP:
            if self.lost_s is not None or self.state == UNSEEN:
                self.add(self.lost_s, seconds)
            self.lost_s = None
        elif what == DOWN and self.state in (UP, UNSEEN):
            self.lost_s = seconds
        if what != TAKEN:
            self.state = what
        elif self.lost_s is None:
            self.state = None

    def add(self, down: "float | None", up: float) -> None:
        up = up if down is None else max(down, up)  # lines of several CPUs are not quite in order
        self.count += 1
        while self.outages and lasted(*self.outages[-1]) <= lasted(down, up):
            self.outages.pop()
        self.full = self.full or len(self.outages) >= OUTAGES
        if not self.full:
            self.outages.append((down, up))

    def followed_by(self, later: "LoggedLink") -> "LoggedLink":
        """Go on with what a later part of the log says of the same NIC."""
        self.interface = later.interface or self.interface
        for seconds, what in later.opening:
            self.open(seconds, what)
            self.step(seconds, what)
        for down, up in later.outages:
            self.add(down, up)
        self.count += later.count - len(later.outages)
        self.full = self.full or later.full
        if later.came_up:
            self.state, self.lost_s = later.state, later.lost_s
        return self


def lasted(down: "float | None", up: float) -> float:
    """How long a link was down, in seconds; of one that was down when the log began, no end."""
    return float("inf") if down is None else up - down


class LoggedLinks(object):
    """The links of all NICs that a log names, by PCI address."""

    def __init__(self) -> None:
        self.found: "dict[str, LoggedLink]" = {}
        self.unread = ""  # why not all of them are known

    def take(self, seconds: "float | None", text: str) -> bool:
        """Whether a message is about a link, and was taken."""
        if not text.startswith(DRIVERS):
            return False
        for what, pattern in LINES[text.partition(" ")[0]]:
            match = pattern.match(text)
            if match:
                self.add(seconds, what, spelled(match), match.group(5))
                return True
        return False

    def add(self, seconds: "float | None", what: str, address: str, interface: str) -> None:
        if seconds is None:
            self.unread = "a line about a link has no time"
        elif address not in self.found and len(self.found) >= MOST:
            self.unread = "there are more than {} NICs".format(MOST)
        else:
            self.found.setdefault(address, LoggedLink()).take(seconds, what, interface)

    def followed_by(self, later: "LoggedLinks") -> "LoggedLinks":
        """Go on with what a later part of the log says."""
        for address, link in later.found.items():
            self.found[address] = self.found.get(address, LoggedLink()).followed_by(link)
        self.unread = self.unread or later.unread
        return self

    def records(self, begins: bool) -> "list[Reading]":
        """A record of each NIC that has lines about its link. Raises ValueError.

        `begins`: whether the log begins at boot.
        """
        if self.unread:
            raise ValueError(self.unread)
        links = {
            address: link if begins else LoggedLink(UNSEEN).followed_by(link)
            for address, link in self.found.items()
        }
        return [record(address, link) for address, link in sorted(links.items()) if link.interface]


def record(address: str, link: "LoggedLink") -> "Reading":
    found = Reading(bus_id=address, interface=link.interface, count=link.count)
    if link.state in (UP, DOWN):
        found["up"] = link.state == UP
    else:
        found.fail("up", "the log does not say it")
    found["outages"] = [outage(*each) for each in link.outages]
    if link.full:
        found.fail("outages", "there are too many that no later one outlasts")
    return found


def outage(down: "float | None", up: float) -> "Reading":
    found = Reading(down_s=down, up_s=up)
    if down is None:
        found.fail("down_s", "it went down before the log begins")
    return found
