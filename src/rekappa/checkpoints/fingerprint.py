"""What a query's state holds, operator by operator and slot by slot, kept beside it: to tell whether changed code would
read it rightly.

Spark compares the types of state, not what it is of: two sums that changed places are read as each other, and nothing
fails. So a slot that has moved is refused. One whose expression is new is told: state keeps what it was made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from rekappa.checkpoints.points import FINGERPRINT
from rekappa.errors import RunError
from rekappa.storage.location import Location

VERSION = 1


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """One operator with state, as the job's code says it. `keys` are what it is kept by, `values` what is kept."""

    kind: str
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"{self.kind} of {', '.join(self.values)}{by}" if self.values else f"{self.kind}{by}"


@dataclass(frozen=True, slots=True)
class StateComparison:
    """`misread` says what would be taken for something else, `changed` what is only computed otherwise from now on."""

    misread: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def compare_state(kept: Sequence[StatefulOperator], now: Sequence[StatefulOperator]) -> StateComparison:
    """What the code as it is now would make of the state that was kept."""
    misread: list[str] = []
    changed: list[str] = []
    for number, (was, has) in enumerate(zip_longest(kept, now), 1):
        if was is None or has is None or was.kind != has.kind:
            misread.append(f"operator {number} was {was or 'not there'}, now it is {has or 'not there'}")
            continue
        for word, before, after in (("key", was.keys, has.keys), ("value", was.values, has.values)):
            if len(before) != len(after):
                # Of a join's columns Spark keeps those that are used: it says itself when these no longer fit.
                text = f"operator {number} ({was.kind}) kept {len(before)} {word}s, now {len(after)}"
                (changed if was.kind == "join" else misread).append(text)
                continue
            for slot, (one, other) in enumerate(zip(before, after, strict=True), 1):
                if one != other:
                    moved = one in after or other in before
                    text = f"{word} {slot} of operator {number} ({was.kind}) was {one}, now it is {other}"
                    (misread if moved else changed).append(text)
    return StateComparison(tuple(misread), tuple(changed))


def write_fingerprint(folder: Location, operators: Sequence[StatefulOperator]) -> None:
    """Keep it with the query's checkpoint. The file is replaced, never written into: a savepoint may share it."""
    told = json.dumps({"version": VERSION, "operators": [asdict(one) for one in operators]}, indent=1)
    (folder / FINGERPRINT).write(told + "\n")


def read_fingerprint(folder: Location) -> tuple[StatefulOperator, ...] | None:
    """What the checkpoint's state holds; None where nobody kept it."""
    file = folder / FINGERPRINT
    if not file.exists():
        return None
    told: Mapping[str, Any] = json.loads(file.read_text())
    if told["version"] > VERSION:
        raise RunError(f"Cannot read {file}: it is of version {told['version']}, this rekappa knows {VERSION}")
    return tuple(StatefulOperator(one["kind"], tuple(one["keys"]), tuple(one["values"])) for one in told["operators"])


def require_same_state(
    query: str, kept: Sequence[StatefulOperator], now: Sequence[StatefulOperator]
) -> tuple[str, ...]:
    """Refuse code that would misread the state of a query; answer what it computes otherwise from now on."""
    found = compare_state(kept, now)
    if found.misread:
        raise RunError(
            f"Cannot go on with the state of query {query!r}: {'; '.join(found.misread)}",
            hint="Spark would read one for the other and not notice. Put them back in their places and add new ones "
            "as a job of their own, or rewind with --no-state.",
        )
    return found.changed
