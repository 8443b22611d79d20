"""Keeps what nodevet.history.model says, in SQLite or PostgreSQL, and gives it back.

Only this package imports SQLAlchemy and Alembic.
"""
