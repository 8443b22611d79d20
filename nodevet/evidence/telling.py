"""The fields of the evidence that name machines, files or people: `--redact` hides them."""

TELLING = frozenset(
    {
        *("host", "hostname", "machine_id", "boot_id", "serial", "uuid", "cluster_uuid"),
        *("system_uuid", "system_serial", "board_serial", "serials"),
        *("arguments", "cmdline", "cgroup", "path", "point", "source", "unit", "peer"),
        *("dmi_product", "board_part_number", "remote_bus_id", "job_id", "master"),
        *("login", "partition", "pod"),
    }
)
"""The fields of the evidence that name something; `command`, a program's own name, stays."""
