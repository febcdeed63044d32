"""How the demo talks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click


def say(text: str) -> None:
    click.echo(click.style(text, bold=not text.startswith(" ")), err=True)


@contextmanager
def step(command: str, what: str = "") -> Iterator[None]:
    """One line per step, with its time once it is done."""
    words = f"  $ {command}" + (f"   {what}" if what else "")
    click.echo(f"{words} …", nl=False, err=True)
    began = time.monotonic()
    try:
        yield
    except BaseException:
        click.echo(" failed", err=True)
        raise
    click.echo(f" {time.monotonic() - began:.1f} s", err=True)
