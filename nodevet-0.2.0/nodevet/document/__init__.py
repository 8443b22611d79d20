"""YAML that people write, such as baselines and inventories, parsed into nodes with positions.

Words on which YAML readers disagree are refused.
"""
