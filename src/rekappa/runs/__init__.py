"""The life of a run: start, watch, stop, resume."""
