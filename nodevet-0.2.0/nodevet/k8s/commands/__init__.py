"""The commands of `nodevet k8s`."""
