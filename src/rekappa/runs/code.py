"""Which code a run runs: kept and recorded as it starts."""

from __future__ import annotations

from pathlib import Path

from rekappa.config.load import Loaded
from rekappa.config.origin import is_secret
from rekappa.config.targets import target_of
from rekappa.home import Home
from rekappa.replay.batches import Feed, record_batches
from rekappa.store.code import Code, keep_code
from rekappa.store.record import Start
from rekappa.store.runs import RunStore


def code_of(home: Home, loaded: Loaded) -> Code:
    """Keep the app's code as it is now; what was overridden belongs to it, secrets do not."""
    told = tuple(text for text in loaded.overrides if not is_secret(tuple(text.partition("=")[0].split("."))))
    return keep_code(home, loaded.folder, told)


def record_live_start(
    store: RunStore, loaded: Loaded, code: Code, run: str, query: str, checkpoint: Path, order: tuple[Feed, ...]
) -> None:
    """Say from which batch on a live query runs this code: the one after the last that its checkpoint committed."""
    record_batches(store, run, query, checkpoint, order)
    last = store.last_batch(run, query)
    target = target_of(loaded.config.sinks[query])
    store.record_start(Start(run, query, 0 if last is None else last + 1, code, target))
