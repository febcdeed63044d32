"""The apps that a rewind is about: the one that is meant, and all known ones that read what it writes.

Known is every app with a live run in this store. Who reads what is told by their configurations as they are now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rekappa.config.bind import Query
from rekappa.config.load import FILE, load
from rekappa.config.model import IcebergCandidate, KafkaCandidate, KafkaSink
from rekappa.errors import RekappaError, RunError
from rekappa.recovery.consumers import TopicOf, reads
from rekappa.recovery.graph import ChainedQuery, Flow, downstream
from rekappa.recovery.live_app import LiveApp
from rekappa.runs.current import TOPICS
from rekappa.store.host import this_host
from rekappa.store.kept import folder_of
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State


@dataclass(frozen=True)
class Chain:
    """`apps` by name, the one that is meant first; `order` are their queries, each after all that it reads from."""

    apps: Mapping[str, LiveApp]
    flows: tuple[Flow, ...]
    order: tuple[ChainedQuery, ...]


def chain_of(head: LiveApp) -> Chain:
    """The app and all that are downstream of it. Refuses circles, and readers whose position is no offset of Kafka."""
    others = _others(head)
    apps = {head.name: head}
    waiting = [head]
    while waiting:
        here = waiting.pop()
        for topic in (topic for query in here.queries for topic in _written(here, query)):
            for name in [name for name, run in others.items() if name not in apps and _touches(head, run, topic)]:
                if not _is_here(others[name]):
                    raise RunError(
                        f"Cannot rewind {head.name!r}: app {name!r} reads its topic {topic.topic!r}, and its folder "
                        f"{others[name].folder} is not on this machine",
                        hint="Rewind them where the folders of all of them are.",
                    )
                apps[name] = LiveApp.of_run(head.home, others[name])
                waiting.append(apps[name])
    flows = tuple(sorted(_flows(apps)))
    nodes = [ChainedQuery(one.name, query.name) for one in apps.values() for query in one.queries]
    return Chain(apps, flows, downstream(flows, nodes))


def chained_again(live: LiveApp, runs: Sequence[Run]) -> list[LiveApp]:
    """The apps of these runs, one of which is at hand already."""
    return [live if run.app == live.name else LiveApp.of_run(live.home, run) for run in runs]


def _others(head: LiveApp) -> dict[str, Run]:
    """The current live run of every other app that is there and can be read."""
    found: dict[str, Run] = {}
    for run in head.store.runs(kind=Kind.LIVE):
        if run.app == head.name or run.state is State.ABANDONED or run.spec.get("elsewhere"):
            continue
        found.setdefault(run.app, run)
    return found


def _is_here(run: Run) -> bool:
    return (Path(run.folder) / FILE).is_file()


def _touches(head: LiveApp, run: Run, topic: TopicOf) -> bool:
    """Whether the run's app reads the topic; refused where nobody can tell: what it has read would stay as it is.

    Of an app on another machine its kept code tells. One whose folder is gone from this machine, and that is not going,
    is nobody's reader.
    """
    held = head.store.lease(run_lease(run.id))
    if not (_is_here(run) or run.state.going or (held is not None and held.machine != this_host().machine)):
        return False
    try:
        loaded = load(folder_of(head.home, run), overrides=run.spec.get("overrides", ()))
    except RekappaError as error:
        raise RunError(
            f"Cannot tell whether app {run.app!r} reads topic {topic.topic!r}: {error.message}",
            hint=f"{error.hint or 'Mend its configuration.'} If nobody runs it any more, remove its folder.",
        ) from None
    if any(_is_same(topic, read) for name in loaded.config.sources for read in reads(loaded.config, head.home, name)):
        return True
    ids = {known for name, known in run.spec.get(TOPICS, {}).items() if name.partition("/")[2] == topic.topic}
    if ids and topic.id in ids:
        raise RunError(
            f"Cannot tell how far to rewind app {run.app!r}: its run {run.id} reads topic {topic.topic!r}, and its "
            "configuration, as it is read here, does not",
            hint=f"Set what {run.app}'s configuration takes from the environment as its run has it. If it reads "
            "another topic by now, run it once, or remove its folder if nobody runs it any more.",
        )
    return False


def _is_same(written: TopicOf, read: TopicOf) -> bool:
    same = written.is_same(read)
    if same is None:
        raise RunError(
            f"Cannot tell whether app {read.config.app!r} reads topic {written.topic!r} of {written.address}: it reads "
            f"one of that name at {read.address}, and one of the two does not answer",
            hint=f"Mend the address of cluster {read.cluster!r} of {read.config.app}. If nobody runs it any more, "
            "remove its folder.",
        )
    return same


def _written(one: LiveApp, query: Query) -> Iterator[TopicOf]:
    config = one.loaded.config
    sink = config.sinks[query.sink]
    if isinstance(sink, KafkaSink):
        yield TopicOf(sink.topic, sink.cluster, config, one.home)


def _flows(apps: Mapping[str, LiveApp]) -> Iterator[Flow]:
    for one in apps.values():
        for query in one.queries:
            for place in _written(one, query):
                for other in apps.values():
                    yield from _read_by(ChainedQuery(one.name, query.name), place, other)


def _read_by(writer: ChainedQuery, place: TopicOf, other: LiveApp) -> Iterator[Flow]:
    config = other.loaded.config
    for query in other.queries:
        for name in other.app.jobs[query.job].sources:
            if not any(_is_same(place, read) for read in reads(config, other.home, name)):
                continue
            source = config.sources[name]
            chosen = source.candidates[source.selected]
            if isinstance(chosen, IcebergCandidate):
                raise RunError(
                    f"Cannot rewind {writer.app!r}: app {other.name!r} follows the archive of its topic "
                    f"{place.topic!r}, and nobody can tell which of its batches read what no longer counts",
                    hint=f"Let {other.name} read Kafka (sources.{name}.selected), or rewind it with --no-state after.",
                )
            assert isinstance(chosen, KafkaCandidate), "Kafka and archives alone are read live"
            for cluster in chosen.cluster:
                if _is_same(place, TopicOf(config.cluster(cluster).topic(chosen.topic), cluster, config, other.home)):
                    region = config.cluster(cluster).region
                    yield Flow(writer, place.topic, ChainedQuery(other.name, query.name), name, region)
