"""What good nodes say of how such a node should be: captured as a baseline, or compared."""
