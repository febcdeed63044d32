"""Publishing a backfill, undoing it, cleaning up after it."""
