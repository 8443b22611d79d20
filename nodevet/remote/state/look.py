"""How things are that a fix would change: enough to put each back.

Values have no part that changes by itself, so that two looks can be compared.
"""

import base64
import os
import re
import stat

from nodevet.remote.probe.children import gather
from nodevet.remote.probe.collectors.gpu import NO_GETTER
from nodevet.remote.probe.collectors.packages import automatic
from nodevet.remote.probe.collectors.processes import parse_stat
from nodevet.remote.probe.files import (
    LIMIT,
    attempt,
    is_this_machine,
    names,
    parse_rows,
    path_under,
    read,
    reason,
    resolve,
)
from nodevet.remote.tools import ToolError, run, show

UNIT = ("LoadState", "UnitFileState", "ActiveState", "FragmentPath")
THREADS = 1 << 14
MODULE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
INSMOD = re.compile(r"insmod\s+(?:\S*/)?([A-Za-z0-9_-]{1,64})\.ko(?:\.\w+)?(?:\s|\Z)")
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:_~-]{0,200}\Z")
VERSIONLOCKS = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")


def look(request):
    """For each touch {exists, value, why}; `why` is set where it could not be looked at."""
    gpus = None
    if any(resource["kind"] == "gpu" for resource in request["resources"]):
        gpus = gather(("gpu",), request["root"], request, request["deadline"])["gpu"]
    return [look_at(request["root"], resource, gpus) for resource in request["resources"]]


def look_at(root, resource, gpus):
    try:
        if resource["kind"] == "gpu":
            return gpu(gpus, resource["name"])
        if resource["kind"] not in KINDS:
            return unseen("a {} cannot be looked at".format(resource["kind"]))
        return KINDS[resource["kind"]](root, resource["name"])
    except ToolError as error:
        return unseen(str(error))
    except (OSError, ValueError, LookupError) as error:
        return unseen(reason(error))


def seen(value):
    return {"exists": True, "value": value, "why": ""}


def absent(value=None):
    return {"exists": False, "value": value, "why": ""}


def unseen(why, exists=False, value=None):
    return {"exists": exists, "value": value, "why": why}


def absolute(path):
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("not an absolute path")
    return path


def file(root, path):
    """{content in base64, mode, owner, group}, or {target} of a symbolic link."""
    directory, name = os.path.split(absolute(path))
    place = os.path.join(path_under(root, directory), name)
    try:
        if stat.S_ISLNK(os.lstat(place).st_mode):
            return seen({"target": os.readlink(place)})
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return unseen("not a regular file", exists=True)
        with os.fdopen(descriptor, "rb", closefd=False) as opened:
            content = opened.read(LIMIT + 1)
    finally:
        os.close(descriptor)
    value = {
        "mode": stat.S_IMODE(status.st_mode),
        "owner": status.st_uid,
        "group": status.st_gid,
    }
    if len(content) > LIMIT:
        return unseen("larger than {} MiB".format(LIMIT >> 20), exists=True, value=value)
    value["content"] = base64.b64encode(content).decode("ascii")
    return seen(value)


def kernel(root, path):
    """The text, without the newline at its end."""
    try:
        text = read(root, absolute(path))
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    except OSError as error:
        return unseen(reason(error), exists=True)
    return seen(text[:-1] if text.endswith("\n") else text)


def unit(root, name):
    """{enabled: UnitFileState, active: ActiveState, masked, fragment}, as systemctl has them."""
    of_this_machine(root)
    rows = show(name, UNIT)
    if rows["LoadState"] == "not-found":
        return absent()
    if rows["LoadState"] not in ("loaded", "masked"):
        return unseen("systemd could not load it: " + rows["LoadState"], exists=True)
    return seen(
        {
            "enabled": rows["UnitFileState"],
            "active": rows["ActiveState"],
            "masked": rows["LoadState"] == "masked",
            "fragment": rows["FragmentPath"],
        }
    )


def gpu(section, name):
    """A field of nodevet.evidence.gpu.Gpu, as the probe reads it.

    What no driver tells (whether clocks are locked) is not there: it can only be reset.
    """
    if section["status"] != "ok":
        return unseen("NVML: " + section["why"])
    uuid, _, field = name.rpartition(":")
    for each in section["data"].get("gpus") or ():
        if uuid and each.get("uuid") == uuid:
            why = each["errors"].get(field) or each["errors"].get("handle")
            if why == NO_GETTER:
                return absent()
            if why is not None or each.get(field) is None:
                return unseen(why or "no such setting of a GPU", exists=True)
            return seen(each[field])
    return unseen("no GPU answers by this UUID")


def module(root, name):
    """{loaded, brings: the others that are not, and that modprobe(8) would load with it}."""
    if not MODULE.match(name):
        raise ValueError("not the name of a module")
    place = path_under(root, "/sys/module")
    if not os.path.isdir(place):
        return unseen("no /sys/module")

    def is_loaded(module):
        return os.path.isdir(os.path.join(place, module))

    if is_loaded(spelt(name)):
        return seen({"loaded": True, "brings": []})
    brings = [other for other in needed(root, name) if not is_loaded(other)]
    return absent({"loaded": False, "brings": brings})


def needed(root, name):
    """The modules that are loaded before this one, in this order. Raises ToolError."""
    if root != "/":
        return []
    code, text = run("modprobe", "--show-depends", "--", name)
    if code != 0:
        raise ToolError("modprobe finds no such module for the running kernel")
    found = [spelt(file.group(1)) for file in map(INSMOD.match, text.splitlines()) if file]
    return [other for other in found if other != spelt(name)]


def spelt(name):
    """As the kernel has it in /sys/module."""
    return name.replace("-", "_")


def package(root, name):
    """{version, held}, of dpkg's or of rpm's database; `automatic` in apt's: apt-mark(8)."""
    of_this_machine(root)
    if not PACKAGE.match(name):
        raise ValueError("not the name of a package")
    if os.path.isfile("/var/lib/dpkg/status"):
        code, text = run(
            "dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${Version}\\n", name
        )
        words = text.split()  # ii 1.2.3, hi 1.2.3, rc 1.2.3, un
        if code == 1 or (words and words[0][1:] in ("n", "c")):
            return absent()  # never installed, or only its configuration is left
        if code != 0 or len(words) != 2 or words[0][1:] != "i":
            return unseen("dpkg-query: not in order: {}".format(ascii(text.strip()[:80])))
        value = {"version": words[1], "held": words[0][0] == "h", "automatic": name in automatic()}
        return seen(value)
    code, text = run("rpm", "-q", "--queryformat", "%{EVR}\\n", "--", name)
    rows = text.split()
    if code != 0:
        return absent() if "is not installed" in text else unseen("rpm does not answer")
    if len(rows) != 1:
        return unseen("{} versions are installed".format(len(rows)), exists=True)
    return seen({"version": rows[0], "held": versionlocked(root, name)})


def versionlocked(root, name):
    """Whether a versionlock list names a package: [epoch:]name-version-release."""
    entry = re.compile(r"(?:[0-9]+:)?{}-[^-]+-[^-]+\Z".format(re.escape(name)))
    for path in VERSIONLOCKS:
        text = attempt(read, root, path)[0] or ""
        if any(entry.match(row.strip()) for row in text.splitlines()):
            return True
    return False


def process(root, pid):
    """{cpus, mems} as lists, when it started in seconds after boot, and threads that differ."""
    if not re.match(r"[1-9][0-9]{0,9}\Z", pid):
        raise ValueError("not a process id")
    place = "/proc/" + pid
    try:
        _, started = parse_stat(read(root, place + "/stat").strip())
        value = binding(root, place + "/status")
        value["started_s"] = started
        value["threads"] = {}
        for thread in names(root, place + "/task", THREADS):
            if thread != pid:
                bound = binding(root, "{}/task/{}/status".format(place, thread))
                if bound["cpus"] != value["cpus"] or bound["mems"] != value["mems"]:
                    value["threads"][thread] = bound
    except (FileNotFoundError, ProcessLookupError):
        if os.path.isdir(path_under(root, place)):
            return unseen("its threads change while they are read", exists=True)
        return absent()
    return seen(value)


def binding(root, path):
    rows = parse_rows(read(root, path))
    return {"cpus": rows["Cpus_allowed_list"], "mems": rows["Mems_allowed_list"]}


def swap(root, name):
    """{active, priority, fstab: its lines in /etc/fstab} of a device or file, or of `all`."""
    rows = [row.split() for row in read(root, "/proc/swaps").splitlines()[1:]]
    active = [row for row in rows if row and name in ("all", row[0])]
    try:
        table = read(root, "/etc/fstab").splitlines()
    except FileNotFoundError:
        table = []
    lines = [line for line in table if is_swap(root, line, name)]
    found = {"active": bool(active), "fstab": lines}
    if name != "all":
        found["priority"] = int(active[0][4]) if active else None
    return seen(found) if active or lines else absent(found)


def is_swap(root, line, name):
    """Whether a line of fstab(5) is of a swap device."""
    words = line.split()
    if len(words) < 3 or words[0].startswith("#") or words[2] != "swap":
        return False
    place = re.sub(r"^(UUID|LABEL|PARTUUID|PARTLABEL)=", by_link, words[0])
    return name in ("all", place) or name == resolve(root, place)


def by_link(match):
    return "/dev/disk/by-{}/".format(match.group(1).lower())


def of_this_machine(root):
    if not is_this_machine(root):
        raise ValueError("systemd and packages are this machine's, and {} is not".format(root))


KINDS = {
    "file": file,
    "kernel": kernel,
    "unit": unit,
    "module": module,
    "package": package,
    "process": process,
    "swap": swap,
}
