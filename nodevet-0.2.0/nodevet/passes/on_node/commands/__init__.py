"""The commands of `nodevet pass`."""
