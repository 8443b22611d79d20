"""Write verdicts to Kubernetes nodes as conditions, and drain nodes for fixes."""
