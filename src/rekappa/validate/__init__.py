"""Comparing staging with production, and saying why they differ."""
