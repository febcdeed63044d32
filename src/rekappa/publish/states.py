"""What the run store says of a run's publication, sink by sink.

For sinks that keep no history of their own it is all that is known; for the others it is a copy.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rekappa.publish.plan import PublishState
from rekappa.staging.staged import Staged
from rekappa.store.runs import RunStore


def recorded(staged: Staged, sink: str) -> PublishState:
    known = (RunStore.open(staged.home).run(staged.run.id).publication or {}).get("sinks", {})
    return PublishState((known.get(sink) or {}).get("state") or PublishState.NEVER)


def record(staged: Staged, sink: str, state: PublishState) -> None:
    """Say in the store what production now holds; an unchanged state keeps its time."""
    store = RunStore.open(staged.home)
    known = dict(store.run(staged.run.id).publication or {})
    sinks = dict(known.get("sinks") or {})
    now = datetime.now(UTC).isoformat()
    if (sinks.get(sink) or {}).get("state") != state:
        sinks[sink] = {"state": state.value, "at": now}
    same = {entry["state"] for entry in sinks.values()} == {state.value} and len(sinks) == len(staged.sinks)
    whole = state.value if same else f"partly {state.value}"
    store.update(
        staged.run.id,
        publication={"state": whole, "at": now, "window": staged.window.as_json(), "sinks": sinks},
    )
