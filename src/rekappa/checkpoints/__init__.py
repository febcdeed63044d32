"""Spark's checkpoints as files: what can be restarted from, forks and savepoints of it."""
