"""Putting a backfill into production, taking it back, cleaning up after it."""
