"""How hosts are reached unless the user says otherwise. Times in seconds."""

PARALLEL = 200  # hosts at the same time
CONNECT_TIMEOUT = 10.0
DEADLINE = 120.0  # of one host
