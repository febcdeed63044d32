"""Counts and sizes in few characters."""

from __future__ import annotations


def count(number: int) -> str:
    """999, 12.3 k, 4.56 M, 1.20 G."""
    return _scaled(number, 1000, ("", " k", " M", " G", " T"))


def size(number: int) -> str:
    """999 B, 12.3 KiB, 4.56 MiB."""
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def _scaled(number: int, step: int, units: tuple[str, ...]) -> str:
    value = float(number)
    for unit in units:
        if abs(value) < step or unit == units[-1]:
            break
        value /= step
    if unit == units[0]:
        return f"{number}{unit}"
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}{unit}"
