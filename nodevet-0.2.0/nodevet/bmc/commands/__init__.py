"""The commands of `nodevet bmc`."""
