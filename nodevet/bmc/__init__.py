"""The management controllers of nodes: read what they report, beside the node's own visit."""
