"""A job's own state, driven key by key in slice order, without Spark's state store."""
