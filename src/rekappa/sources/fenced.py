"""The fence of a source's topic: what its clusters say, live and for its archive."""

from __future__ import annotations

import hashlib
import time
from functools import reduce

from rekappa.config.model import AppConfig, KafkaCandidate, Source
from rekappa.errors import SourceError
from rekappa.fence.line import Fence
from rekappa.fence.topic import LineageTopic
from rekappa.home import Home
from rekappa.sources.kafka import bootstrap, client_options
from rekappa.storage.location import Location

AWAY_FOR = 60.0
"""Seconds for which a cluster that did not answer is not asked again for the sake of an archive."""
_away: dict[str, float] = {}


def lineage_topic(config: AppConfig, home: Home, cluster: str) -> LineageTopic:
    """The lineage topic of a cluster of the app."""
    return LineageTopic(client_options(config, cluster, home))


def live_fence(config: AppConfig, home: Home, candidate: KafkaCandidate) -> Fence:
    """What counts of the topic that the candidate reads, on all its clusters, as it stands now.

    Where something is abandoned, that is noted in the project's storage: its archive is not read without asking then.
    """
    found = []
    for name in candidate.cluster:
        topic = config.cluster(name).topic(candidate.topic)
        found.append(lineage_topic(config, home, name).fence(topic))
        if found[-1].abandons:
            note_abandoned(config, home, name, topic)
    return reduce(Fence.joined, found)


def note_abandoned(config: AppConfig, home: Home, cluster: str, topic: str) -> None:
    """Note that not everything counts of a topic."""
    note = _note(config, home, cluster, topic)
    if not note.exists():
        note.write(f"some messages of topic {topic} on cluster {cluster} do not count\n")


def archive_fence(config: AppConfig, home: Home, source: Source) -> Fence | None:
    """What counts of a source's archive, which holds all that its topic ever held; None where everything does.

    An archive is also read while its cluster is away. Then everything counts, unless it is known that not: refused.
    """
    for candidate in source.candidates.values():
        if not isinstance(candidate, KafkaCandidate):
            continue
        try:
            found = _asked_patiently(config, home, candidate)
        except SourceError as error:
            topics = {name: config.cluster(name).topic(candidate.topic) for name in candidate.cluster}
            if any(_note(config, home, name, topic).exists() for name, topic in topics.items()):
                raise SourceError(
                    f"Cannot read the archive of topic {candidate.topic!r}: some of its messages do not count, and "
                    f"which is not known ({error.message})",
                    hint=error.hint,
                ) from None
            continue
        if found.abandons:
            return found
    return None


def _asked_patiently(config: AppConfig, home: Home, candidate: KafkaCandidate) -> Fence:
    """The same, but a cluster that has just let us wait in vain is not waited for again: an archive is opened often."""
    addresses = " ".join(bootstrap(config, name, home) for name in candidate.cluster)
    if time.monotonic() - _away.get(addresses, -AWAY_FOR) < AWAY_FOR:
        raise SourceError(f"{addresses} did not answer in the last {AWAY_FOR:.0f} seconds")
    try:
        return live_fence(config, home, candidate)
    except SourceError:
        _away[addresses] = time.monotonic()
        raise


def _note(config: AppConfig, home: Home, cluster: str, topic: str) -> Location:
    address = f"{config.cluster(cluster).bootstrap} {topic}"
    return home.storage / "fences" / hashlib.sha256(address.encode()).hexdigest()[:16]
