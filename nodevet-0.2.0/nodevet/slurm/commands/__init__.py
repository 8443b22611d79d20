"""The commands of `nodevet slurm`."""
