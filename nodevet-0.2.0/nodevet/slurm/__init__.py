"""Slurm: vet nodes from its hooks, drain what fails, and resume what was repaired."""
