"""Which micro-batches a query can be restarted from, from a listing of its checkpoint's files. Pure.

    files = {"commits/7": CheckpointFile(...), "state/0/0/8.delta": ...}
    for point in restart_points(files):
        point.batch, point.lacking

Batch N is there when commits/N, offsets/N and offsets/N-1 are (Spark reads both to know where N began) and every state
store holds version N+1: a snapshot at or below it and every delta or changelog after that. A store begins empty, as
version 0. A snapshot of RocksDB is a zip that names further files; `named` is asked for them, where it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

Named = Callable[[str], Iterable[str]]
"""The files that a RocksDB snapshot names, all in the folder `SSTs` beside it. Given the snapshot's own name."""

_VERSION = re.compile(r"(\d+)\.(snapshot|delta|zip|changelog)")
_OTHER_FORMAT = re.compile(r"state/.*/\d+_[^/]*\.(snapshot|delta|zip|changelog)")
_LEADING = re.compile(r"\d+")
_WHOLE, _CHANGES = ("snapshot", "zip"), ("delta", "changelog")
_SSTS = "SSTs"
FINGERPRINT = "rekappa-state.json"
"""Beside Spark's own files: what the state is of."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file of a checkpoint, by its name below the query's folder, with slashes."""

    name: str
    size: int
    changed: datetime


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """A committed micro-batch. `lacking` names the files without which it can't be restored; empty if it can.

    `state` counts the bytes of its state, without what RocksDB's snapshots name unless those were asked.
    """

    batch: int
    committed: datetime
    state: int = 0
    lacking: tuple[str, ...] = ()

    @property
    def restorable(self) -> bool:
        return not self.lacking


@dataclass(frozen=True, slots=True)
class _StateStore:
    """One state store: the versions of its snapshots and of its changes, each with the file that holds it."""

    folder: str
    whole: Mapping[int, str]
    changes: Mapping[int, str]

    def chain(self, version: int) -> tuple[list[str], str | None]:
        """The files that version is made of, newest first, and the one that is missing, if any."""
        found: list[str] = []
        for at in range(version, 0, -1):
            if at in self.whole:
                return [*found, self.whole[at]], None
            if at not in self.changes:
                kind = _kind(self.changes, "delta" if self._in_memory else "zip")
                return found, f"{self.folder}/{at}.{kind}"
            found.append(self.changes[at])
        return found, None

    @property
    def _in_memory(self) -> bool:
        return not any(name.endswith((".zip", ".changelog")) for name in (*self.whole.values(), *self.changes.values()))


def restart_points(files: Mapping[str, CheckpointFile], named: Named | None = None) -> tuple[RestartPoint, ...]:
    """Every committed batch, oldest first, with what it lacks. Without `named`, snapshots are taken to be complete."""
    stores = _stores(files)
    reach = [_reach(store) for store in stores]
    always = [f"{name} (of a newer format)" for name in files if _OTHER_FORMAT.fullmatch(name)] or _absent(
        files, stores
    )
    points = []
    for batch in _numbers(files, "commits"):
        lacking = [*always, *(name for name in _log(batch) if name not in files)]
        broken = [store for store, there in zip(stores, reach, strict=True) if batch + 1 not in there]
        lacking += [missing for store in broken if (missing := store.chain(batch + 1)[1]) is not None]
        held = [] if broken else [name for store in stores for name in store.chain(batch + 1)[0]]
        if named is not None and not broken:
            held += _sst_files(stores, batch, named)
            lacking += [name for name in held if name not in files]
        size = sum(files[name].size for name in held if name in files)
        points.append(RestartPoint(batch, files[f"commits/{batch}"].changed, size, tuple(lacking)))
    return tuple(points)


def needed_files(files: Mapping[str, CheckpointFile], batch: int, named: Named) -> tuple[str, ...]:
    """The files that a checkpoint which ends with `batch` is made of, checksums of Hadoop's included.

    For a point that is restorable. The file `metadata` is not among them: it holds the query's id, and a fork has one
    of its own.
    """
    stores = _stores(files)
    wanted = {name for name in (*_log(batch), FINGERPRINT) if name in files}
    wanted |= {name for store in stores for name in store.chain(batch + 1)[0]}
    wanted |= set(_sst_files(stores, batch, named))
    folders = {store.folder for store in stores}
    for name in files:
        top, _, rest = name.partition("/")
        if top == "sources" or (top == "state" and _describes(rest, name, folders)):
            number = _LEADING.match(name.rsplit("/", 1)[-1])
            if number is None or int(number[0]) <= batch:
                wanted.add(name)
    sums = {f"{folder}/.{name}.crc" for folder, _, name in (each.rpartition("/") for each in wanted)}
    return tuple(sorted(name for name in wanted if not _is_sum(name)) + sorted(sums & files.keys()))


def last_restorable(points: Iterable[RestartPoint], until: datetime | None = None) -> RestartPoint | None:
    """The newest point that can be restored, of those committed at or before a moment."""
    fitting = (one for one in points if one.restorable and (until is None or one.committed <= until))
    return max(fitting, key=lambda one: one.batch, default=None)


def nearest(points: Iterable[RestartPoint], batch: int) -> tuple[RestartPoint, ...]:
    """The restorable points next to a batch: the one before it and the one after it, where there are such."""
    there = [one for one in points if one.restorable]
    before = max((one for one in there if one.batch < batch), key=lambda one: one.batch, default=None)
    after = min((one for one in there if one.batch > batch), key=lambda one: one.batch, default=None)
    return tuple(one for one in (before, after) if one is not None)


def _log(batch: int) -> list[str]:
    before = [f"offsets/{batch - 1}"] if batch else []
    return [f"commits/{batch}", f"offsets/{batch}", *before]


def _numbers(files: Iterable[str], folder: str) -> list[int]:
    names = (name.removeprefix(f"{folder}/") for name in files if name.startswith(f"{folder}/"))
    return sorted(int(name) for name in names if name.isdigit())


def _stores(files: Iterable[str]) -> list[_StateStore]:
    whole: dict[str, dict[int, str]] = {}
    changes: dict[str, dict[int, str]] = {}
    for name in files:
        folder, _, last = name.rpartition("/")
        found = _VERSION.fullmatch(last) if folder.startswith("state/") else None
        if found is None:
            continue
        for kinds, held in ((_WHOLE, whole), (_CHANGES, changes)):
            versions = held.setdefault(folder, {})
            if found[2] in kinds:
                versions[int(found[1])] = name
    return [_StateStore(folder, whole[folder], changes[folder]) for folder in sorted(whole)]


def _absent(files: Iterable[str], stores: Iterable[_StateStore]) -> list[str]:
    """Folders of stores that are not there: every operator has one of each of its stores in every partition. An
    operator that is described, or of which some file is left, and that has no store at all has lost them."""
    placed = [store.folder.split("/", 3) for store in stores]
    there = {tuple(place[1:]) for place in placed}
    partitions = {place[2] for place in placed}
    kinds = {(place[1], *place[3:]) for place in placed}
    wanted = {(kind[0], partition, *kind[1:]) for kind in kinds for partition in partitions}
    operators = {(name.split("/", 2)[1],) for name in files if name.startswith("state/")}
    lost = operators - {(place[1],) for place in placed}
    return sorted("/".join(("state", *place)) for place in {*(wanted - there), *lost})


def _reach(store: _StateStore) -> set[int]:
    """The versions that the store can be brought to."""
    there: set[int] = {0}
    for version in sorted(store.whole.keys() | store.changes.keys()):
        if version in store.whole or version - 1 in there:
            there.add(version)
    return there


def _sst_files(stores: Iterable[_StateStore], batch: int, named: Named) -> list[str]:
    found = []
    for store in stores:
        base = store.chain(batch + 1)[0][-1:]
        for snapshot in base:
            if snapshot.endswith(".zip"):
                found += [f"{store.folder}/{_SSTS}/{name}" for name in named(snapshot)]
    return found


def _describes(rest: str, name: str, folders: set[str]) -> bool:
    """Whether a file below state/ says what the state is, and is no version of it."""
    folder = name.rpartition("/")[0]
    return folder not in folders and f"/{_SSTS}/" not in f"/{rest}"


def _is_sum(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(".crc")


def _kind(changes: Mapping[int, str], otherwise: str) -> str:
    return next(iter(changes.values())).rpartition(".")[2] if changes else otherwise
