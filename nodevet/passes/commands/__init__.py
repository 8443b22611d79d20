"""The group `nodevet pass`."""
