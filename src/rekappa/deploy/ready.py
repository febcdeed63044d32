"""Asked by a probe inside the pod: is this machine at work on the app?

    python3 -m rekappa.deploy.ready APP live|archive

Exit code 0 if a process of this host holds the lease of a run of that kind, 1 if not or if the store does not answer.
"""

from __future__ import annotations

import sys

from rekappa.errors import RekappaError
from rekappa.home import Home
from rekappa.store.host import this_host
from rekappa.store.record import Kind
from rekappa.store.runs import RunStore


def at_work(home: Home, app: str, kind: Kind) -> bool:
    """Whether a run of this app and kind is going on here; refuses with `RekappaError` a store that is not there."""
    found = RunStore.existing(home).runs(app, kind)
    return any(run.state.going and run.host == this_host().name for run in found)


def main(words: list[str]) -> int:
    app, kind = words
    try:
        ready = at_work(Home.locate(), app, Kind(kind))
    except RekappaError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    if not ready:
        print(f"no {kind} run of {app} is at work on {this_host().name}", file=sys.stderr)
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
