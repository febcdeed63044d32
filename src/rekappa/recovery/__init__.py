"""Recovering a live job: from an earlier point, from history, or in another way."""
