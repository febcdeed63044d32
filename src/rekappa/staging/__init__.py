"""Staging: where a backfill writes, and what it left there."""
