"""Steps that are carried out once, however often their process is killed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RepeatableStep:
    """`do` may be called again when it is not known whether it was done: it then changes nothing, or what is left."""

    name: str
    do: Callable[[], None]


def carry_out(
    steps: Sequence[RepeatableStep],
    done: Collection[str],
    note: Callable[[Sequence[str]], None],
    tell: Callable[[str], None],
) -> None:
    """Carry out the steps that are not `done`, in order. `note` is told of all that are, after each; `tell` of the
    one that begins."""
    noted = list(done)
    for step in steps:
        if step.name in noted:
            continue
        tell(step.name)
        step.do()
        noted.append(step.name)
        note(noted)
