"""Saved plans: one file, gzip JSON lines, of which a single slice can be read without the rest.

    identity = save(plan, path)
    plan = load(path)                          the whole of it
    part = PlanFile(path).slice("sessions", 7)   one slice: what a micro-batch needs

The head, each slice and the index are gzip members of their own, one after the other, so `zcat` shows the
whole plan. The last member has a fixed size and says where the index is.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from io import BytesIO
from typing import Any, BinaryIO, Protocol

from rekappa.errors import PlanError
from rekappa.plan.encode import Json, decode_head, decode_slice, encode_head, encode_slice
from rekappa.plan.model import Slice
from rekappa.plan.plan import PLAN_VERSION, Plan


class PlanLocation(Protocol):
    """Where a plan is: a location of storage. Reading raises FileNotFoundError, writing is whole or not at all."""

    def reading(self) -> AbstractContextManager[BinaryIO]: ...

    def write(self, content: bytes) -> None: ...


_DAMAGE = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError)


def _line(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _member(line: bytes, level: int = 1) -> bytes:
    # No time in the gzip header: equal plans are equal files.
    return gzip.compress(line, compresslevel=level, mtime=0)


def _trailer(index_at: int) -> bytes:
    return _member(b'{"index_at":%20d}\n' % index_at, level=0)


_TRAILER_SIZE = len(_trailer(0))


def _lines(plan: Plan) -> Iterator[tuple[str | None, bytes]]:
    """Every line that makes up the content: the head (no job), then each job's slices in order."""
    yield None, _line(encode_head(plan))
    for job in plan.jobs:
        for part in job.slices:
            yield job.name, _line(encode_slice(part))


def plan_id(plan: Plan) -> str:
    """A hash of the plan's content."""
    digest = hashlib.sha256()
    for _, line in _lines(plan):
        digest.update(line)
    return digest.hexdigest()[:16]


def save(plan: Plan, location: PlanLocation) -> str:
    """Write the plan and answer its id. The file is there whole or not at all, also after a crash."""
    digest = hashlib.sha256()
    index: dict[str, list[int]] = {job.name: [] for job in plan.jobs}
    at, out = 0, BytesIO()
    for job, line in _lines(plan):
        digest.update(line)
        at += out.write(_member(line))
        # A slice's entry is where it ends: with the entry before (or the job's start) that is its place.
        if job is None:
            starts = at
        else:
            index[job].append(at)
    identity = digest.hexdigest()[:16]
    out.write(_member(_line({"id": identity, "slices_at": starts, "ends": index})))
    out.write(_trailer(at))
    location.write(out.getvalue())
    return identity


def load(location: PlanLocation) -> Plan:
    """The whole plan. Refuses one of a newer version, and one whose content does not match its id."""
    return PlanFile(location).plan()


class PlanFile:
    """A saved plan, read piece by piece. Opens the file anew for every answer, so it may be kept and shared."""

    def __init__(self, location: PlanLocation) -> None:
        self.location = location

    def slice(self, job: str, number: int) -> Slice:
        """One slice of one job, without reading the others. Refuses a job or a number that the plan does not have."""
        count = self.slice_count(job)
        if not 0 <= number < count:
            raise PlanError(f"Cannot read slice {number} of job {job!r}: the plan has {count}")
        start, end = self._place(job, number)
        try:
            with self.location.reading() as file:
                file.seek(start)
                return decode_slice(json.loads(gzip.decompress(file.read(end - start))))
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def slice_count(self, job: str) -> int:
        ends = self._index["ends"]
        if job not in ends:
            raise PlanError(f"Cannot find job {job!r} in plan {self.location}", hint=f"It plans: {', '.join(ends)}.")
        return len(ends[job])

    @property
    def id(self) -> str:
        return str(self._index["id"])

    @cached_property
    def head(self) -> Plan:
        """The plan with no slices in it: cheap, whatever the plan's size."""
        value = self._read_head()
        try:
            return decode_head(value, {})
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def plan(self) -> Plan:
        """The whole plan, checked against its id."""
        digest = hashlib.sha256()
        index = self._index
        slices: dict[str, tuple[Slice, ...]] = {}
        try:
            with self.location.reading() as file:
                line = gzip.decompress(file.read(index["slices_at"]))
                digest.update(line)
                head = json.loads(line)
                at = index["slices_at"]
                for job, ends in index["ends"].items():
                    parts = []
                    for end in ends:
                        line = gzip.decompress(file.read(end - at))
                        digest.update(line)
                        parts.append(decode_slice(json.loads(line)))
                        at = end
                    slices[job] = tuple(parts)
            if digest.hexdigest()[:16] != index["id"]:
                raise ValueError("its content does not match its id")
            return decode_head(head, slices)
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def _place(self, job: str, number: int) -> tuple[int, int]:
        """The bytes [start, end) of one slice."""
        start = self._index["slices_at"]
        for name, ends in self._index["ends"].items():
            if name == job:
                return (ends[number - 1] if number else start), ends[number]
            start = ends[-1] if ends else start
        raise AssertionError("slice_count refuses unknown jobs")

    @cached_property
    def _index(self) -> dict[str, Any]:
        self._read_head()  # the version is checked before anything else is believed
        try:
            with self.location.reading() as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TRAILER_SIZE))
                at = json.loads(gzip.decompress(file.read()))["index_at"]
                file.seek(at)
                index = json.loads(gzip.decompress(file.read(size - _TRAILER_SIZE - at)))
                if not {"id", "slices_at", "ends"} <= index.keys():
                    raise ValueError("its index is not one")
                return dict(index)
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def _read_head(self) -> Json:
        try:
            with self.location.reading() as stored, gzip.open(stored) as file:
                head = json.loads(file.readline())
                version = int(head["version"])
        except FileNotFoundError:
            raise PlanError(f"Cannot read plan {self.location}: there is no such file") from None
        except _DAMAGE as error:
            raise self._damaged(error) from error
        if version != PLAN_VERSION:
            raise PlanError(
                f"Cannot read plan {self.location}: it has version {version}, this rekappa reads {PLAN_VERSION}",
                hint="Use the rekappa that made the plan, or plan again.",
            )
        return dict(head)

    def _damaged(self, error: Exception) -> PlanError:
        return PlanError(f"Cannot read plan {self.location}: the file is damaged ({error})", hint="Plan again.")
