"""What a replay did, batch by batch, kept beside its checkpoint so that a resumed run can still add it up."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rekappa.storage.location import Location

PAGE = 100
"""Entries of one file: an object store takes no additions, so a file is written anew with each of its entries."""


@dataclass(frozen=True, slots=True)
class BatchNote:
    """One finished micro-batch, from Spark's report on it."""

    batch: int
    rows: int
    late_rows: int
    state_rows: int
    watermark: datetime | None
    millis: int

    @classmethod
    def of(cls, report: dict[str, Any]) -> BatchNote | None:
        """None for the reports that Spark makes while it waits for data."""
        if "addBatch" not in report.get("durationMs", {}):
            return None
        operators = report.get("stateOperators", [])
        watermark = (report.get("eventTime") or {}).get("watermark")
        return cls(
            batch=report["batchId"],
            rows=report["numInputRows"],
            late_rows=sum(one.get("numRowsDroppedByWatermark", 0) for one in operators),
            state_rows=sum(one.get("numRowsTotal", 0) for one in operators),
            watermark=datetime.fromisoformat(watermark) if watermark else None,
            millis=report["durationMs"].get("triggerExecution", 0),
        )


class Journal:
    """Notes by batch, in a folder of numbered files. A batch that ran again after a crash counts once."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        self.watermark: datetime | None = None
        self.not_final_from: datetime | None = None
        self.newest = -1
        self.rows = self.late_rows = self.peak_state_rows = 0
        self._notes: dict[int, BatchNote] = {}
        pages = [(folder / name).read_text().splitlines() for name in folder.names() if name.endswith(".jsonl")]
        self._full, self._page = max(0, len(pages) - 1), pages[-1] if pages else []
        for line in (line for page in pages for line in page):
            entry = json.loads(line)
            moment = datetime.fromisoformat(entry["watermark"]) if entry["watermark"] else None
            if "batch" in entry:
                self._take(BatchNote(**{**entry, "watermark": moment}))
            elif "not_final_from" in entry:
                self.not_final_from = datetime.fromisoformat(entry["not_final_from"])
            else:
                self.watermark = moment

    @property
    def last(self) -> BatchNote | None:
        return self._notes.get(self.newest)

    def add(self, note: BatchNote) -> None:
        self._take(note)
        self._append(asdict(note))

    def _take(self, note: BatchNote) -> None:
        before = self._notes.get(note.batch)
        self._notes[note.batch] = note
        self.newest = max(self.newest, note.batch)
        self.rows += note.rows - (before.rows if before else 0)
        self.late_rows += note.late_rows - (before.late_rows if before else 0)
        self.peak_state_rows = max(self.peak_state_rows, note.state_rows)

    def note_watermark(self, watermark: datetime | None) -> None:
        """The last watermark at which what came out was final, before the end of the replay forces the rest out."""
        if self.watermark is None and watermark is not None:
            self.watermark = watermark
            self._append({"watermark": watermark})

    def note_not_final(self, moment: datetime) -> None:
        """The earliest sink time of the window that was forced out. The same batch, run again, says the same."""
        if self.not_final_from != moment:
            self.not_final_from = moment
            self._append({"not_final_from": moment.isoformat(), "watermark": None})

    def _append(self, entry: dict[str, Any]) -> None:
        moment = entry["watermark"]
        if len(self._page) == PAGE:
            self._full, self._page = self._full + 1, []
        self._page.append(json.dumps({**entry, "watermark": moment.isoformat() if moment else None}))
        (self.folder / f"{self._full:06}.jsonl").write("\n".join(self._page) + "\n")
