"""What the run store forgets: code that no run needs any more, old micro-batches of live runs, and old runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from rekappa.home import Home
from rekappa.publish.cleaned import Cleaned
from rekappa.store.record import Kind, Run
from rekappa.store.runs import RunStore


def forget_code(
    store: RunStore, home: Home, gone: Collection[str], retention: timedelta, *, dry_run: bool
) -> list[Cleaned]:
    """Drop kept code that only runs that are gone ran, and the folders here of code that is kept no more, whoever
    dropped it. Production's code stays."""
    now = datetime.now(UTC)
    found = store.unneeded_code(gone, retention)
    if not dry_run:
        store.drop_code(found)
        kept = store.kept_hashes()
        for folder in home.code.iterdir() if home.code.is_dir() else ():
            if folder.is_dir() and folder.name not in kept and not folder.name.startswith("."):
                shutil.rmtree(folder, ignore_errors=True)
    return [Cleaned(f"code {digest[:12]}", "", None, 0, size, now, None) for digest, size in sorted(found.items())]


def last_sign(run: Run) -> datetime:
    """When anything was last heard of the run."""
    return run.ended or run.started or run.created


def old_runs(runs: Iterable[Run], age: timedelta, now: datetime) -> list[Run]:
    """Runs of an app that nobody has heard of for so long: over, or abandoned. Newest first in, and out.

    The newest live run of its places and the newest router of its tables stay: they are what goes on.
    """
    found, lines = [], set[str]()
    for run in runs:
        goes_on = False
        if run.kind in (Kind.LIVE, Kind.ARCHIVE):
            told = json.dumps(run.spec.get("elsewhere") or run.spec.get("tables") or {}, sort_keys=True)
            goes_on = f"{run.kind} {told}" not in lines
            lines.add(f"{run.kind} {told}")
        if not goes_on and not run.state.going and now - last_sign(run) >= age:
            found.append(run)
    return found


def forget_runs(store: RunStore, gone: Sequence[Run], *, dry_run: bool) -> list[Cleaned]:
    """Drop the records of these runs."""
    if gone and not dry_run:
        store.forget([run.id for run in gone])
    return [Cleaned("record", run.id, None, 1, 0, last_sign(run), None) for run in gone]


def forget_history(store: RunStore, runs: Iterable[Run], age: timedelta, *, dry_run: bool) -> list[Cleaned]:
    """Drop the micro-batches of live runs that are older than that: their time can't be replayed exactly then."""
    before = datetime.now(UTC) - age
    answer = []
    for run in runs:
        count = store.batch_count(run.id, before) if run.kind is Kind.LIVE else 0
        if count:
            answer.append(Cleaned("micro-batches", run.id, None, count, 0, before, None))
            if not dry_run:
                store.drop_batches(run.id, before)
    return answer
