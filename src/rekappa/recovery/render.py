"""Advice as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from rekappa.recovery.advice import Advice, Recovery

_TITLE = {
    Recovery.NOTHING: "Nothing to repair",
    Recovery.BACKFILL: "Backfill the window",
    Recovery.REWIND: "Rewind the job",
    Recovery.CASCADE: "Rewind the job and all that read from it",
    Recovery.BOOTSTRAP: "Bootstrap the job",
    Recovery.LOST: "Not all can be repaired",
}


def advice_lines(advice: Advice) -> Iterator[str]:
    """A title, the reasons, the commands to copy, what to keep in mind."""
    yield f"{_TITLE[advice.recovery]} ({', '.join(advice.sinks)})"
    for text in advice.why:
        yield f"  {text}"
    if advice.commands:
        yield ""
        for command in advice.commands:
            yield f"    {command}"
    if advice.notes:
        yield ""
        for note in advice.notes:
            yield f"  note: {note}"
    yield ""
