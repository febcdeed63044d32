"""One publisher for each kind of sink."""
