"""The checkpoint of a replay: how far it is, and the batch that closes it.

Spark's watermark follows the data, so at the end of the data the last windows, joins and timers stay open. The
closing batch is logged by us, into the replay's own checkpoint: the same offsets once more, with a watermark that
is past everything. Spark takes it for a batch that it had begun, runs it without input, and lets the state go.
Its offsets are marked as closed, so that Spark asks the source for its (no) rows and plans the batch like any other.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rekappa.errors import RunError
from rekappa.spark.offsetlog import last_committed, last_planned, read_batch

CLOSED = "closed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a checkpoint is. `slices` counts those that the newest logged batch reads up to."""

    planned: int | None
    committed: int | None
    slices: int
    watermark: datetime | None

    @property
    def settled(self) -> bool:
        """Every batch that was begun has been committed."""
        return self.planned == self.committed


def reached(checkpoint: Path) -> Reached:
    """What the checkpoint's logs say; all sources of a replay must stand at the same slice."""
    planned = last_planned(checkpoint)
    if planned is None:
        return Reached(None, None, 0, None)
    batch = read_batch(checkpoint, planned)
    slices = {json.loads(line)["slice"] for line in batch.sources if line is not None}
    if len(slices) != 1 or None in batch.sources:
        raise RunError(
            f"Cannot continue from checkpoint {checkpoint}: its sources stand at different slices {sorted(slices)}",
            hint="Start the backfill again: this checkpoint was changed by something else.",
        )
    return Reached(planned, last_committed(checkpoint), slices.pop(), batch.watermark)


def is_closing(checkpoint: Path, number: int | None) -> bool:
    """Whether this logged batch is the closing one."""
    if number is None:
        return False
    return any(line is not None and CLOSED in json.loads(line) for line in read_batch(checkpoint, number).sources)


def log_closing_batch(checkpoint: Path, watermark: datetime) -> int:
    """Log the closing batch after the newest one, which must be committed. Answers its number."""
    at = reached(checkpoint)
    if at.planned is None or not at.settled:
        raise RunError(f"Cannot close checkpoint {checkpoint}: its newest batch {at.planned} is not committed")
    folder = checkpoint / "offsets"
    version, metadata, *sources = (folder / str(at.planned)).read_text().splitlines()
    changed = json.loads(metadata)
    changed["batchWatermarkMs"] = max(
        int(changed["batchWatermarkMs"]), (watermark - _EPOCH) // timedelta(milliseconds=1)
    )
    closed = [json.dumps({**json.loads(line), CLOSED: True}) for line in sources]
    number = at.planned + 1
    (folder / f".{number}.crc").unlink(missing_ok=True)
    unfinished = folder / f".{number}.closing"
    unfinished.write_text("\n".join([version, json.dumps(changed, separators=(",", ":")), *closed]))
    os.replace(unfinished, folder / str(number))
    return number
