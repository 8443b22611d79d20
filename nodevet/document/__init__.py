"""YAML that people write: text to nodes that know their line, traps caught by name.

Baselines and inventories are read through it.
"""
