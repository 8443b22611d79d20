"""Configuration managers that run on this node: Puppet, Salt, Chef, CFEngine, Rudder, ansible-pull,
Base Command Manager, Warewulf, and the start-up script of a Google Cloud instance.

Only their servers know what they will set. So nodevet names them, with how often they run if their
configuration says it, and still plans every fix.
"""

import re

from nodevet.remote.managers.hooks import root_processes
from nodevet.remote.managers.search import Survey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
SPAN = re.compile(r"(\d{1,9})\s*([a-z]*)\s*")
UNITS = re.compile(
    r"(?:s(?:ec(?:onds?)?)?|m(?:in(?:utes?)?)?|h(?:r|ours?)?|d(?:ays?)?|w(?:eeks?)?)?\Z"
)
TIMER_SPAN = re.compile(r"\s*On(?:UnitActive|UnitInactive)Sec\s*=\s*(.+)")
CALENDAR = re.compile(r"\s*OnCalendar\s*=\s*(.+)")
NAMED = {"hourly": 3600, "daily": 86400, "weekly": 604800}
CRON_FOLDERS = {"/etc/cron.{}/".format(name): seconds for name, seconds in NAMED.items()}


class Agent(object):
    """`services`: its own; `command`: a regular expression of a command that runs it; `settings`:
    (path, regular expression of a line whose group is how often it runs)."""

    def __init__(
        self,
        name: str,
        services: "tuple[str, ...]",
        command: str,
        settings: "Sequence[tuple[str, str]]" = (),
    ) -> None:
        self.name = name
        self.services = services
        self.command = re.compile(command)
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
    Agent("rudder", ("rudder-agent.service",), r"\brudder\s+agent\s+run\b"),
    Agent("base command manager", ("cmd.service",), r"/cm/local/apps/cmd/sbin/cmd\b"),
    Agent("warewulf", ("wwclient.service",), r"\bwwclient\b"),
    Agent(
        "start-up script of google cloud",
        ("google-startup-scripts.service",),
        r"\bgoogle_metadata_script_runner\s+startup\b",
    ),
)
INTERVAL_OPTION = re.compile(r"\s(?:-i|--interval|--runinterval)[\s=]+(\d+[a-z]*)(?=\s|\Z)")


def agents(request: "dict[str, Any]") -> "list[dict[str, object]]":
    """[{name, every_s}] of the agents that run here; every_s is None if unknown."""
    search = AgentSearch(request["root"])
    rows = [(agent, search.intervals(agent)) for agent in AGENTS]
    return [
        {"name": agent.name, "every_s": search.interval(agent, intervals)}
        for agent, intervals in rows
        if intervals is not None
    ]


class AgentSearch(object):
    def __init__(self, root: str) -> None:
        self.survey = Survey(root)
        self.node, self.units = self.survey.node, self.survey.units
        self.processes = root_processes(root)
        self.running = [
            (name, list(self.units.commands(name))) for name in sorted(self.units.services)
        ]

    def intervals(self, agent: "Agent") -> "list[int | None] | None":
        """How often each service or cron job runs it, None if unknown; None if nothing runs it."""
        intervals = list(self.service_intervals(agent)) + list(self.cron_intervals(agent))
        is_running = any(agent.command.search(" ".join(row)) for row in self.processes)
        return intervals if intervals or is_running else None

    def service_intervals(self, agent: "Agent") -> "Iterator[int | None]":
        for name, commands in self.running:
            matching = [text for _, _, text in commands if agent.command.search(text)]
            if (matching or name in agent.services) and self.survey.is_live(name):
                options = [INTERVAL_OPTION.search(text) for text in matching]
                intervals = [span_seconds(option.group(1)) for option in options if option]
                yield next(iter(intervals + self.timer_intervals(name)), None)

    def timer_intervals(self, service: str) -> "list[int | None]":
        """How often each timer of a service starts it."""
        intervals = []
        for timer in self.units.starters(service)[1:]:
            path = self.units.path(timer)
            for file in self.units.files(timer, path) if path else ():
                for _, line in self.node.lines(file):
                    span, calendar = TIMER_SPAN.match(line), CALENDAR.match(line)
                    intervals += [span_seconds(span.group(1))] if span else []
                    intervals += [calendar_seconds(calendar.group(1))] if calendar else []
        return intervals

    def cron_intervals(self, agent: "Agent") -> "Iterator[int | None]":
        for path in self.node.jobs():
            for _, line in self.node.lines(path):
                if agent.command.search(line):
                    folder = next((top for top in CRON_FOLDERS if path.startswith(top)), None)
                    yield CRON_FOLDERS[folder] if folder else crontab_seconds(line)

    def interval(self, agent: "Agent", intervals: "list[int | None]") -> "int | None":
        """Seconds between runs, by its configuration, else by what starts it most often."""
        for path, pattern in agent.settings:
            for _, line in self.node.lines(path):
                match = pattern.match(line)
                if match and span_seconds(match.group(1)):
                    return span_seconds(match.group(1))
        return min((seconds for seconds in intervals if seconds), default=None)


def span_seconds(text: str) -> "int | None":
    """Seconds of a time span of systemd or Puppet; None for 0 and for any other text.

    >>> [span_seconds(text) for text in ("1800", "30m", "1h 30min", "0", "30 fortnights", "P1D")]
    [1800, 1800, 5400, None, None, None]
    """
    text, total, position = text.strip().strip("\"'").lower(), 0, 0
    while position < len(text):
        match = SPAN.match(text, position)
        if not match or not UNITS.match(match.group(2)):
            return None
        total += int(match.group(1)) * SECONDS[match.group(2)[:1] or "s"]
        position = match.end()
    return total or None


def calendar_seconds(text: str) -> "int | None":
    """Seconds between elapses of OnCalendar=; None if the expression is not simple.

    >>> calendar_seconds("hourly"), calendar_seconds("*:0/30"), calendar_seconds("Mon *-*-* 04:00")
    (3600, 1800, None)
    """
    text = text.strip()
    match = re.match(r"(?:\*-\*-\* )?\*:0{1,2}/([1-9]\d?)(?::00)?\Z", text)
    return int(match.group(1)) * 60 if match else NAMED.get(text)


def crontab_seconds(line: str) -> "int | None":
    """Seconds between runs of a line of a crontab; None if the times are not simple.

    >>> times = ("*/30 * * * *", "7,37 * * * *", "5 */2 * * *", "@daily", "5 4 * * *", "5 4 1 * *")
    >>> [crontab_seconds(time + " x") for time in times]
    [1800, 1800, 7200, 86400, 86400, None]
    """
    fields = line.split()
    if fields[0].startswith("@"):
        return NAMED.get(fields[0][1:])
    if len(fields) < 6 or fields[2:5] != ["*", "*", "*"]:
        return None
    minute, hour = fields[:2]
    step = re.match(r"\*/([1-9]\d?)\Z", minute)
    minutes = re.match(r"\d{1,2}(?:,\d{1,2})*\Z", minute)
    if hour == "*" and (step or minutes):
        return int(step.group(1)) * 60 if step else 3600 // len(minute.split(","))
    hours = re.match(r"\*/([1-9]\d?)\Z", hour)
    if minutes and "," not in minute and (hours or re.match(r"\d{1,2}\Z", hour)):
        return int(hours.group(1)) * 3600 if hours else 86400
    return None
