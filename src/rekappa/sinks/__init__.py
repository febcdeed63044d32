"""Where results go, and how each place takes a re-run."""
