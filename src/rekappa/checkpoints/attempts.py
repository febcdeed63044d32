"""What a rewind keeps while it is tried and forked, and what is left of it when its process is killed.

    with trial(home, "rmi", operation, query) as scratch:     a copy to try the code on
    with forking(home, "rmi", operation):                     until the store knows the run

Both have a folder by the operation's id, which says when it began. It goes with the block; what a kill has left, or a
store that did not answer, goes a day later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from rekappa.home import Home
from rekappa.storage.location import Location
from rekappa.store.record import made_at

LEFT = timedelta(days=1)
"""No rewind takes so long to be tried or forked: what is older, nobody is at work on."""
_FORKING = "forking"


@contextmanager
def trial(home: Home, app: str, operation: str, query: str) -> Iterator[Location]:
    """A folder to try a query in, one query at a time."""
    folder = _attempt(home, app, operation)
    try:
        yield folder / query
    finally:
        folder.remove()


@contextmanager
def forking(home: Home, app: str, operation: str) -> Iterator[None]:
    """While the checkpoint of a run is built that no store knows yet.

    Left by an exception it stays marked: a store that failed may know the run all the same, and then it is the run's.
    """
    folder = _attempt(home, app, operation)
    (folder / _FORKING).write("")
    yield
    folder.remove()


def drop_left(home: Home, app: str, known: Collection[str], now: datetime) -> None:
    """Remove what killed rewinds of the app have left: trials, and forks whose run is not among those that are `known`
    to the store."""
    attempts = home.storage / "preflight" / app
    for operation in attempts.names():
        began = made_at(operation)
        if began is None or now - began <= LEFT:
            continue
        if operation not in known and (attempts / operation / _FORKING).exists():
            home.checkpoint(app, operation).remove()
        (attempts / operation).remove()


def _attempt(home: Home, app: str, operation: str) -> Location:
    return home.storage / "preflight" / app / operation
