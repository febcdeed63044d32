"""What a table needs to take rows that it does not take as it is. Pure: types are compared by their names.

    found = compare("lake.rmi.plays", {"id": "bigint", "more": "int"}, {"id": "int"}, SPARK_TABLE)
    found.steps      (Step("more", "int"), Step("id", "bigint", was="int"))

A step loses nothing: it adds a nullable column, or widens one so that every value it holds stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rekappa.errors import SinkError

Fits = Callable[[str, str], bool]
_UNTYPED = re.compile(r"\bvoid\b")
"""What Spark calls the type of a NULL that nobody cast; it may stand inside an array or a struct."""
_DECIMAL = re.compile(r"(?:decimal|numeric)\((\d+),\s*(\d+)\)$")


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a table: column `column` becomes a `kind`; it is added if it `was` nothing before."""

    column: str
    kind: str
    was: str | None = None

    def __str__(self) -> str:
        if self.was is None:
            return f"add column {self.column} ({self.kind})"
        return f"widen column {self.column} from {self.was} to {self.kind}"


@dataclass(frozen=True, slots=True)
class Changes:
    """What stands between rows and a table. `steps` can be done; `stuck` says what can't, and what is possible instead.

    `unfilled` are the table's columns that the rows do not have, where the sink leaves such columns alone.
    """

    where: str
    steps: tuple[Step, ...] = ()
    stuck: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the rows can be written as the table is."""
        return not self.steps and not self.stuck


@dataclass(frozen=True, slots=True)
class TypeRules:
    """What one kind of table can do.

    `takes` says whether rows of one type can be written to a column of another as it is, `widens` whether a column can
    be altered from one type to another. `instead` is what a person can do about a type that can't. `whole`: a table
    with more columns than the rows is refused. `folded`: names are the same whatever their case.
    """

    takes: Fits
    widens: Fits
    instead: str
    whole: bool = True
    folded: bool = True


def compare(where: str, rows: Mapping[str, str], table: Mapping[str, str], rules: TypeRules) -> Changes:
    """What the table needs; both sides are columns with their types in the table's own words."""
    fold: Callable[[str], str] = str.lower if rules.folded else str
    held = {fold(name): (name, kind) for name, kind in table.items()}
    steps, stuck = [], []
    for name, kind in rows.items():
        if _UNTYPED.search(kind):
            stuck.append(
                f"column {name} has no type: it is only ever null (cast it in the job to the type it shall have)"
            )
            continue
        if fold(name) not in held:
            steps.append(Step(name, kind))
            continue
        known, has = held[fold(name)]
        if kind == has or rules.takes(kind, has):
            continue
        if rules.widens(has, kind):
            steps.append(Step(known, kind, has))
        else:
            stuck.append(f"column {known} is {kind} in the rows and {has} in the table ({rules.instead})")
    made = {fold(name) for name in rows}
    lacking = tuple(name for key, (name, _) in held.items() if key not in made)
    if rules.whole:
        stuck += [
            f"the table's column {name} is not in the rows (let the job make it, null if need be, or drop it from the "
            "table yourself: its values are lost then)"
            for name in lacking
        ]
    return Changes(where, tuple(steps), tuple(stuck), () if rules.whole else lacking)


def require_fit(found: Changes) -> None:
    """Refuse rows that the table can't take as it is, naming the columns."""
    if not found.fits:
        lacks = [*found.stuck, *(f"it would have to {step}" for step in found.steps)]
        raise SinkError(
            f"Cannot write to {found.where}: {'; '.join(lacks)}",
            hint="`rekappa migrate APP` gives a sink's table the columns that its job has gained.",
        )


def widening(*chains: tuple[str, ...]) -> Fits:
    """Whether one type comes before another in a chain, such as int before bigint; decimals gain digits before the
    point, never after it."""
    pairs = {(chain[at], later) for chain in chains for at in range(len(chain)) for later in chain[at + 1 :]}
    return lambda one, other: (one, other) in pairs or _more_digits(one, other)


def _more_digits(one: str, other: str) -> bool:
    first, second = _DECIMAL.match(one), _DECIMAL.match(other)
    return bool(first and second and first[2] == second[2] and int(first[1]) <= int(second[1]))


def never(one: str, other: str) -> bool:
    """For tables that alter no type."""
    return False


SPARK_TAKES = widening(("tinyint", "smallint", "int", "bigint"), ("float", "double"))
