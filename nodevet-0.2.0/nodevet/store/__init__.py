"""The history database, in SQLite or PostgreSQL; nodevet.store.records.model has its records.

Only this package imports SQLAlchemy and Alembic. Import it inside functions: it loads slowly.
"""

from nodevet.store.errors import StoreError, StoreHeldError
from nodevet.store.recorder import Recorder
from nodevet.store.store import Store, open_store

__all__ = ["Recorder", "Store", "StoreError", "StoreHeldError", "open_store"]
