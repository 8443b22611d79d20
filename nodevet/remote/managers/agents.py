"""Configuration managers that work on this node: Puppet, Salt, Chef, CFEngine, ansible-pull.

What they will set is known to their servers alone, so they are named, with how often they run where
their configuration says it, and keep nothing from being planned.
"""

import re

from nodevet.remote.managers.root_processes import root_processes
from nodevet.remote.managers.search import Survey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
SPAN = re.compile(r"(\d{1,9})\s*([a-z]*)\s*")
UNITS = re.compile(
    r"(?:s(?:ec(?:onds?)?)?|m(?:in(?:utes?)?)?|h(?:r|ours?)?|d(?:ays?)?|w(?:eeks?)?)?\Z"
)
EVERY = re.compile(r"\s*On(?:UnitActive|UnitInactive)Sec\s*=\s*(.+)")
CALENDAR = re.compile(r"\s*OnCalendar\s*=\s*(.+)")
NAMED = {"hourly": 3600, "daily": 86400, "weekly": 604800}
CRON_FOLDERS = {"/etc/cron.{}/".format(name): seconds for name, seconds in NAMED.items()}


class Agent(object):
    """`services` are its own; `words`, a regular expression of a command that runs it; `settings`,
    (path, regular expression of a line whose group is how often it runs)."""

    def __init__(
        self,
        name: str,
        services: "tuple[str, ...]",
        words: str,
        settings: "Sequence[tuple[str, str]]" = (),
    ) -> None:
        self.name = name
        self.services = services
        self.words = re.compile(words)
        self.settings = [(path, re.compile(pattern)) for path, pattern in settings]


AGENTS = (
    Agent(
        "puppet",
        ("puppet.service", "pe-puppet.service"),
        r"\bpuppet\s+(?:agent|apply)\b",
        [
            (path, r"\s*runinterval\s*=\s*(\S+)")
            for path in ("/etc/puppetlabs/puppet/puppet.conf", "/etc/puppet/puppet.conf")
        ],
    ),
    Agent("salt", ("salt-minion.service",), r"\bsalt-(?:minion|call)\b"),
    Agent("ansible-pull", ("ansible-pull.service",), r"\bansible-pull\b"),
    Agent(
        "chef",
        ("chef-client.service", "cinc-client.service"),
        r"\b(?:chef|cinc)-client\b",
        [
            ("/etc/chef/client.rb", r"\s*interval\s+(\d+)"),
            ("/etc/cinc/client.rb", r"\s*interval\s+(\d+)"),
        ],
    ),
    Agent(
        "cfengine",
        ("cfengine3.service", "cfengine.service", "cf-execd.service"),
        r"\bcf-(?:agent|execd)\b",
    ),
)
INTERVAL_OPTION = re.compile(r"\s(?:-i|--interval|--runinterval)[\s=]+(\d+[a-z]*)(?=\s|\Z)")


def agents(request: "dict[str, Any]") -> "list[dict[str, object]]":
    """[{name, every_s}] of those that run here; every_s is None where it is not known."""
    found = AgentSearch(request["root"])
    rows = [(agent, found.places(agent)) for agent in AGENTS]
    return [
        {"name": agent.name, "every_s": found.every(agent, places)}
        for agent, places in rows
        if places is not None
    ]


class AgentSearch(object):
    def __init__(self, root: str) -> None:
        self.survey = Survey(root)
        self.node, self.units = self.survey.node, self.survey.units
        self.processes = root_processes(root)
        self.running = [
            (name, list(self.units.commands(name))) for name in sorted(self.units.services)
        ]

    def places(self, agent: "Agent") -> "list[int | None] | None":
        """How often each place runs it, None where that is not said; None if it is nowhere."""
        found = list(self.of_services(agent)) + list(self.of_cron(agent))
        runs = any(agent.words.search("{} {}".format(*each)) for each in self.processes)
        return found if found or runs else None

    def of_services(self, agent: "Agent") -> "Iterator[int | None]":
        for name, commands in self.running:
            words = [text for _, _, text in commands if agent.words.search(text)]
            if (words or name in agent.services) and self.survey.lives(name):
                options = [INTERVAL_OPTION.search(text) for text in words]
                said = [seconds(option.group(1)) for option in options if option]
                yield next(iter(said + self.of_timers(name)), None)

    def of_timers(self, service: str) -> "list[int | None]":
        """How often the timers of a service start it."""
        found = []
        for timer in self.units.starters(service)[1:]:
            path = self.units.path(timer)
            for file in self.units.files(timer, path) if path else ():
                for _, line in self.node.lines(file):
                    every, calendar = EVERY.match(line), CALENDAR.match(line)
                    found += [seconds(every.group(1))] if every else []
                    found += [of_calendar(calendar.group(1))] if calendar else []
        return found

    def of_cron(self, agent: "Agent") -> "Iterator[int | None]":
        for path in self.node.jobs():
            for _, line in self.node.lines(path):
                if agent.words.search(line):
                    folder = next((top for top in CRON_FOLDERS if path.startswith(top)), None)
                    yield CRON_FOLDERS[folder] if folder else of_crontab(line)

    def every(self, agent: "Agent", places: "list[int | None]") -> "int | None":
        """What its configuration says, or else what starts it most often."""
        for path, pattern in agent.settings:
            for _, line in self.node.lines(path):
                match = pattern.match(line)
                if match and seconds(match.group(1)):
                    return seconds(match.group(1))
        return min((each for each in places if each), default=None)


def seconds(text: str) -> "int | None":
    """A span of time as systemd and Puppet write it; None for anything else, and for none.

    >>> [seconds(each) for each in ("1800", "30m", "1h 30min", "0", "30 fortnights", "P1D")]
    [1800, 1800, 5400, None, None, None]
    """
    text, total, place = text.strip().strip("\"'").lower(), 0, 0
    while place < len(text):
        match = SPAN.match(text, place)
        if not match or not UNITS.match(match.group(2)):
            return None
        total += int(match.group(1)) * SECONDS[match.group(2)[:1] or "s"]
        place = match.end()
    return total or None


def of_calendar(text: str) -> "int | None":
    """How often OnCalendar= elapses, if that is plain.

    >>> of_calendar("hourly"), of_calendar("*:0/30"), of_calendar("Mon *-*-* 04:00")
    (3600, 1800, None)
    """
    text = text.strip()
    match = re.match(r"(?:\*-\*-\* )?\*:0{1,2}/([1-9]\d?)(?::00)?\Z", text)
    return int(match.group(1)) * 60 if match else NAMED.get(text)


def of_crontab(line: str) -> "int | None":
    """How often a line of a crontab runs, if that is plain.

    >>> [of_crontab(each + " root x") for each in ("*/30 * * * *", "7,37 * * * *", "5 */2 * * *")]
    [1800, 1800, 7200]
    >>> of_crontab("@daily root x"), of_crontab("5 4 * * *  x"), of_crontab("5 4 1 * * x")
    (86400, 86400, None)
    """
    words = line.split()
    if words[0].startswith("@"):
        return NAMED.get(words[0][1:])
    if len(words) < 6 or words[2:5] != ["*", "*", "*"]:
        return None
    minute, hour = words[:2]
    step = re.match(r"\*/([1-9]\d?)\Z", minute)
    listed = re.match(r"\d{1,2}(?:,\d{1,2})*\Z", minute)
    if hour == "*" and (step or listed):
        return int(step.group(1)) * 60 if step else 3600 // len(minute.split(","))
    hours = re.match(r"\*/([1-9]\d?)\Z", hour)
    if listed and "," not in minute and (hours or re.match(r"\d{1,2}\Z", hour)):
        return int(hours.group(1)) * 3600 if hours else 86400
    return None
