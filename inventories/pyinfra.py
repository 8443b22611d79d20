# Hosts in a pyinfra inventory:  nodevet check -i inventories/pyinfra.py
#
# Each list is a group. A host is a name, or (name, data); a group with data is
# (hosts, data). Data for a group may also stand in group_data/GROUP.py beside
# this file, and for every host in group_data/all.py.
#
# Read from the data: ssh_hostname, ssh_port, ssh_user, ssh_key, _sudo, and our
# own nodevet_root and nodevet_python. The file is run as a program.

h100 = [f"gpu{number:03d}" for number in range(1, 65)]

a100 = (
    [
        "gpu065",
        ("gpu066", {"ssh_hostname": "10.20.1.66", "ssh_port": 2222}),
        "@ssh/gpu067",
    ],
    {"ssh_key": "/etc/nodevet/keys/a100"},
)

login = ["@local"]
