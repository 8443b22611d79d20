"""Reads the evidence of a node, and never writes."""
