"""The management controllers of nodes: nodevet reads them while it visits the nodes."""
