"""What the run store forgets: code that no run needs any more and, when told, old micro-batches of live runs."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
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
