"""Which code a run runs: kept and recorded as it starts, and taken from there when it goes on."""

from __future__ import annotations

from dataclasses import replace

from rekappa.config.load import Loaded, load
from rekappa.config.origin import is_secret
from rekappa.config.targets import target_of
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.replay.batches import Feed, record_batches
from rekappa.spark.offsetlog import last_committed
from rekappa.storage.location import Location
from rekappa.store.claim import Claim
from rekappa.store.code import Code
from rekappa.store.kept import keep_code, kept_folder
from rekappa.store.record import Start
from rekappa.store.runs import RunStore


def code_of(home: Home, loaded: Loaded) -> Code:
    """Keep the app's code as it is now; what was overridden belongs to it, secrets do not."""
    told = tuple(text for text in loaded.overrides if not is_secret(tuple(text.partition("=")[0].split("."))))
    return keep_code(home, loaded.folder, told)


def record_live_start(
    store: RunStore, loaded: Loaded, code: Code, claim: Claim, query: str, checkpoint: Location, order: tuple[Feed, ...]
) -> None:
    """Say from which batch on a live query runs this code: the one after the last that its checkpoint committed."""
    assert claim.run is not None
    before = store.last_batch(claim.run, query)
    if before is not None and last_committed(checkpoint) is None:
        raise RunError(
            f"Cannot continue live run {claim.run}: {checkpoint} does not have its checkpoint, of which the run store "
            f"knows batch {before}",
            hint="Set REKAPPA_STORAGE as where it ran before, or begin a new run with --fresh.",
        )
    record_batches(store, claim, query, checkpoint, order)
    last = store.last_batch(claim.run, query)
    target = target_of(loaded.config.sinks[query])
    store.record_start(Start(claim.run, query, 0 if last is None else last + 1, code, target), claim)


def kept_version(home: Home, code: Code, base: Loaded) -> Loaded:
    """Kept code, to be run where things are now: what is computed is its own, the places are those of `base`."""
    assert code.hash is not None, "only kept code can be run again"
    loaded = load(kept_folder(home, code.hash), overrides=code.overrides)
    kept, here = loaded.config, base.config
    sources = {
        name: source.model_copy(
            update={"candidates": here.sources[name].candidates, "selected": here.sources[name].selected}
        )
        if name in here.sources
        else source
        for name, source in kept.sources.items()
    }
    places = {name: getattr(here, name) for name in ("catalogs", "clusters", "profiles", "archive")}
    return replace(loaded, config=kept.model_copy(update={**places, "sources": sources}))


def as_begun(home: Home, run: str, loaded: Loaded) -> Loaded:
    """The app as the run began it: as it is now, or, if its code has changed since, the kept version."""
    starts = RunStore.open(home).starts(run)
    if not starts or starts[0].code.hash in (None, code_of(home, loaded).hash):
        return loaded
    return kept_version(home, starts[0].code, loaded)
