"""Which temperatures a working sensor can read."""

DEGREES = range(-40, 151)
"""Of a chip or a drive, in degrees Celsius: parts are made for -40 to 125 at most."""
MARGINS = range(-60, 151)
"""Of a chip, in degrees to a limit."""
