"""Keeps what nodevet.store.records.model says, in SQLite or PostgreSQL, and gives it back.

Only this package imports SQLAlchemy and Alembic; it is imported where it is needed, not before.
"""

from nodevet.store.errors import StoreError, StoreHeldError
from nodevet.store.recorder import Recorder
from nodevet.store.store import Store, open_store

__all__ = ["Recorder", "Store", "StoreError", "StoreHeldError", "open_store"]
