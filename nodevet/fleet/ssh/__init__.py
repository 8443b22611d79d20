"""SSH: ssh_config(5), keys, host keys, and the transport that they lead to."""
