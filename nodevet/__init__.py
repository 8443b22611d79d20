"""nodevet vets GPU nodes against declarative baselines."""

__version__ = "0.1.0"
