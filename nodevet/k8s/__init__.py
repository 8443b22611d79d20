"""nodevet in Kubernetes: verdicts become conditions of nodes, and nodes are drained for fixes."""
