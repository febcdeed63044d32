"""Commands in processes that outlive whoever asked for them, started again when they fail."""
