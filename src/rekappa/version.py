"""The version of rekappa, for those who want nothing else of it."""

__version__ = "0.1.0"
