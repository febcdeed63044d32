"""Fixtures of the console's tests."""

from site_of import site

__all__ = ["site"]
