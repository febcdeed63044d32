"""Which code production ran: from what its live runs recorded as they started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rekappa.errors import ValidationError
from rekappa.plan.model import Slice, reader
from rekappa.runs.stretches import Stretch
from rekappa.store.code import Code
from rekappa.store.record import Batch, Start

ELSEWHERE = (
    "profiles.",
    "clusters.",
    "catalogs.",
    "archive.",
    "prices.",
    "staging_retention",
    "history_retention",
    "sinks.",
)
"""What is configured here says where and how a job runs, not what it computes."""
PACE = (".selected", ".max_records_per_batch", ".starting", ".max_misalignment", ".follow")
"""What ends so says of a source where it is read and how fast, not what its events are."""


class NoControl(ValidationError):
    """An experiment can't be made; the message says why. Differences that only it could settle stay unexplained."""


def same_code(one: Code, two: Code) -> bool:
    """Whether both compute the same: the same files and the same overrides of what a job reads."""
    return one.hash is not None and one.hash == two.hash and _telling(one) == _telling(two)


def _telling(code: Code) -> list[str]:
    return sorted(
        text for text in code.overrides if not text.startswith(ELSEWHERE) and not text.partition("=")[0].endswith(PACE)
    )


@dataclass(frozen=True, slots=True)
class Version:
    """From micro-batch `batch` on, this code ran."""

    batch: int
    code: Code


def versions(starts: Sequence[Start]) -> list[Version]:
    """The code of one query in the order of its batches; starts with the code that ran before are one."""
    found: list[Version] = []
    for start in sorted(starts, key=lambda one: one.batch):
        if not found or not same_code(found[-1].code, start.code):
            found.append(Version(start.batch, start.code))
    unknown = [one for one in found if one.code.hash is None]
    if unknown or not found:
        raise NoControl(f"production's code was not kept: {unknown[0].code.reason if unknown else 'not recorded'}")
    return found


def stretches(slices: Sequence[Slice], batches: Sequence[Batch], known: Sequence[Version]) -> list[Stretch]:
    """Which code ran each stretch of the slices, which are production's micro-batches in their order.

    Refuses slices that are not the recorded batches, and batches from before the code was recorded.
    """
    first = _first_batch(slices, batches)
    reading = next((at for at, piece in enumerate(slices) if piece.sources), 0)
    found: list[Stretch] = []
    for at in range(len(slices)):
        # What is before the first slice that reads anything only sets the watermark, whoever runs it.
        ran = [version for version in known if version.batch <= max(first + max(at, reading), 0)]
        if not ran:
            raise NoControl(f"which code ran batch {first + at} is not recorded")
        if found and same_code(found[-1].code, ran[-1].code):
            found[-1] = Stretch(found[-1].code, at + 1)
        else:
            found.append(Stretch(ran[-1].code, at + 1))
    return found


def _first_batch(slices: Sequence[Slice], batches: Sequence[Batch]) -> int:
    """The number of the batch that the first slice is."""
    ends = {
        batch.number: {
            (reader(one.source, one.reader), one.region, one.topic, part): end
            for one in batch.positions
            for part, end in one.ends.items()
        }
        for batch in batches
    }
    wanted = {
        at: {
            (name, one.region, one.topic, one.partition): one.end
            for name, part in piece.sources.items()
            for one in part.offsets
        }
        for at, piece in enumerate(slices)
    }
    telling = [at for at, want in wanted.items() if want]
    for number in sorted(ends):
        first = number - telling[0] if telling else number
        if all(
            ends.get(first + at, {}).get(place) == end for at in telling for place, end in wanted[at].items()
        ) and _moved(ends, number, wanted[telling[0]] if telling else {}):
            return first
    raise NoControl("the slices of the exact plan are not production's recorded micro-batches one by one")


def _moved(
    ends: dict[int, dict[tuple[str, str, str, int], int]], number: int, want: dict[tuple[str, str, str, int], int]
) -> bool:
    """Whether this batch read these offsets: the batch before had not got there."""
    return all(ends.get(number - 1, {}).get(place, 0) < end for place, end in want.items())
