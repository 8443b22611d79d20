"""nodevet vets GPU nodes against declarative baselines."""

__version__ = "0.2.0"
