# Data of the group h100.

_sudo = True
