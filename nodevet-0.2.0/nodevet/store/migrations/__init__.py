"""The schema of the store, one step from version to version; run by Alembic."""
