"""What the run store says of a run's publication, sink by sink.

For sinks that keep no history of their own it is all that is known; for the others it is a copy.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rekappa.publish.plan import PublishState
from rekappa.staging.staged import Staged
from rekappa.store.record import Run
from rekappa.store.runs import RunStore


def recorded(staged: Staged, sink: str) -> PublishState:
    known = (RunStore.open(staged.home).run(staged.run.id).publication or {}).get("sinks", {})
    return PublishState((known.get(sink) or {}).get("state") or PublishState.NEVER)


def record(staged: Staged, sink: str, state: PublishState) -> None:
    """Say in the store what production now holds; a state that is said again keeps its time."""
    now = datetime.now(UTC).isoformat()

    def with_this(run: Run) -> dict[str, Any]:
        sinks = dict((run.publication or {}).get("sinks") or {})
        if (sinks.get(sink) or {}).get("state") != state:
            sinks[sink] = {"state": state.value, "at": now}
        same = {entry["state"] for entry in sinks.values()} == {state.value} and len(sinks) == len(staged.names)
        whole = state.value if same else f"partly {state.value}"
        at = max(str(entry["at"]) for entry in sinks.values())
        told = {"state": whole, "at": at, "owner": staged.loaded.config.owner, "window": staged.window.as_json()}
        return {"publication": {**told, "sinks": sinks}}

    RunStore.open(staged.home).amend(staged.run.id, with_this)
