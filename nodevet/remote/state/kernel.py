"""A file of /sys or /proc/sys."""

import re

from nodevet.remote.look import absent, absolute_path, present, unknown
from nodevet.remote.managers import cpufreq
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import exists, parse_rows, read, reason

HUGE_PAGES = re.compile(r"/sys/kernel/mm/hugepages/hugepages-([0-9]+)kB/nr_hugepages\Z")
HUGE_KEY = "vm.nr_hugepages"  # of pages of the default size
X86_SIZE = "2048"  # KiB


# no one can read them; drop_caches only before Linux 5.14, as what was written last
TRIGGERS = ("/proc/sys/vm/compact_memory", "/proc/sys/vm/drop_caches")


def look(root: str, path: str) -> "dict[str, object]":
    """The text without the last newline."""
    if path in TRIGGERS:
        return present("(write-only)") if exists(root, path) else absent()
    try:
        text = read(root, absolute_path(path))
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    except OSError as error:
        return unknown(reason(error), exists=True)
    return present(text[:-1] if text.endswith("\n") else text)


def patterns(root: str, path: str) -> "Patterns":
    """What sets a sysctl, a CPU frequency, huge pages or another kernel file."""
    if path.startswith("/proc/sys/"):
        key = path[len("/proc/sys/") :].replace("/", ".")
        words = key_words(key)
        return Patterns(words, tuned=r"^\s*{}\s*=".format(words), key=key)
    pages = HUGE_PAGES.match(path)
    if pages:
        return patterns_of_pages(root, path, pages.group(1))
    frequency = cpufreq.patterns_of_file(path)
    if frequency:
        return frequency
    last = re.escape("/".join(path.split("/")[-2:]))
    if path.startswith("/sys/class/net/") and path.endswith("/mtu"):
        link = re.escape(path.split("/")[-2])
        return Patterns(
            r"{}|\b(?:ip|ifconfig)\s.*(?<![\w.-]){}(?![\w.-]).*\bmtu\s".format(last, link),
            path=path,
        )
    tuned = last
    if path == "/sys/kernel/mm/transparent_hugepage/enabled":
        tuned += r"|^\s*transparent_hugepages?\s*="
    return Patterns(last, tuned=tuned, path=path)


def key_words(key: str) -> str:
    """A sysctl as commands and files spell it."""
    return re.escape(key).replace(r"\.", "[./]")


def patterns_of_pages(root: str, path: str, size_kb: str) -> "Patterns":
    """What reserves huge pages of a size; a script may name sizes by a pattern or a variable."""
    words = r"(?:hugepages-{}kB|[^/\s]*[*?$][^/\s]*)/nr_hugepages|\bhugeadm\b".format(size_kb)
    if size_kb != default_size_kb(root):
        return Patterns(words, tuned=words, path=path)
    words += "|" + key_words(HUGE_KEY)
    return Patterns(words, tuned=words, path=path, key=HUGE_KEY)


def default_size_kb(root: str) -> str:
    """The size of the pages that vm.nr_hugepages counts; that of x86 if it cannot be read."""
    try:
        rows = parse_rows(read(root, "/proc/meminfo"))
    except OSError:
        return X86_SIZE
    return rows.get("Hugepagesize", X86_SIZE).split(" ")[0]
