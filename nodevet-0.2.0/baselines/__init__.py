"""The shipped baselines: one YAML file per node type, and the common parts they extend."""
