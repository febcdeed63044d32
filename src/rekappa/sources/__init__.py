"""Where events come from: every source yields the same record shape."""
