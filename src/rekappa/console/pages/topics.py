"""A topic between apps: who writes it, who reads it, and which of its messages count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from rekappa.console.context import Console, console_of, core_of, page
from rekappa.console.observed import Observation
from rekappa.errors import RunError
from rekappa.operations.core import Core
from rekappa.recovery.topics import TopicPlace, places_in
from rekappa.shown import plain

router = APIRouter()
FRESH = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class TopicAtBroker:
    """A topic on one cluster. `seen` is what `rekappa lineage TOPIC` said of it last."""

    cluster: str
    broker: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    seen: Observation


@router.get("/topics/{topic}")
def one_topic(request: Request, topic: str) -> Response:
    found = known_topic(console_of(request), core_of(request), topic)
    return page(request, "topic.html", topic=topic, found=found)


@router.get("/api/topics/{topic}")
def topic_document(request: Request, topic: str) -> Response:
    """What `rekappa lineage TOPIC --json` said last, and when, for each cluster that has the topic."""
    found = known_topic(console_of(request), core_of(request), topic)
    told = [
        {"cluster": one.cluster, "at": one.seen.at, "error": one.seen.error, "lineage": one.seen.value} for one in found
    ]
    return JSONResponse(plain(told))


def known_topic(console: Console, core: Core, topic: str) -> list[TopicAtBroker]:
    """The topic by its clusters; refuses one that no app here reads or writes: nobody else's is asked for."""
    apps = [one.loaded for one in core.apps() if one.loaded is not None]
    by_broker: dict[str, list[TopicPlace]] = {}
    for place in places_in(apps, topic):
        by_broker.setdefault(place.loaded.config.cluster(place.cluster).bootstrap, []).append(place)
    if not by_broker:
        raise RunError(f"Cannot find topic {topic!r}: no app here reads or writes it")
    return [_at(console, topic, broker, places) for broker, places in by_broker.items()]


def _at(console: Console, topic: str, broker: str, places: Sequence[TopicPlace]) -> TopicAtBroker:
    first = places[0]
    words = ("lineage", topic, f"--app={first.loaded.folder}", f"--cluster={first.cluster}")
    writers, readers = (
        tuple(dict.fromkeys(one.loaded.config.app for one in places if one.writes is writes))
        for writes in (True, False)
    )
    return TopicAtBroker(first.cluster, broker, writers, readers, console.observed.ask(*words, fresh=FRESH))
