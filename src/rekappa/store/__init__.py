"""The run store: what is known of every run, and which process is at work on it."""
