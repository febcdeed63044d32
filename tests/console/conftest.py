"""Fixtures of the console's tests."""

from console.site_of import site

__all__ = ["site"]
