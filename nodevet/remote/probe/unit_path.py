"""Where systemd looks for units of the system, first wins: systemd.unit(5), Unit File Load Path."""

UNIT_PATH = (
    "/etc/systemd/system.control",  # systemctl set-property
    "/run/systemd/system.control",
    "/run/systemd/transient",  # systemd-run
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",  # portablectl
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
TRANSIENT = "/run/systemd/transient/"
"""What is there is loaded: the file goes with the unit."""
