"""Which messages of a topic count, told by their headers and a topic beside it, so that none is ever wiped."""
