"""SSH: ssh_config(5), keys, host keys, and transports."""
