"""The fence of a source's topic: what its clusters say, live and for its archive."""

from __future__ import annotations

import hashlib
from functools import reduce

from rekappa.config.model import AppConfig, KafkaCandidate, Source
from rekappa.errors import SourceError
from rekappa.fence.line import Fence
from rekappa.fence.topic import LineageTopic
from rekappa.home import Home
from rekappa.sources.kafka import client_options
from rekappa.storage.location import Location


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
            note = _note(config, home, name, topic)
            if not note.exists():
                note.write(f"some messages of topic {topic} on cluster {name} do not count\n")
    return reduce(Fence.joined, found)


def archive_fence(config: AppConfig, home: Home, source: Source) -> Fence | None:
    """What counts of a source's archive, which holds all that its topic ever held; None where everything does.

    An archive is also read while its cluster is away. Then everything counts, unless it is known that not: refused.
    """
    for candidate in source.candidates.values():
        if not isinstance(candidate, KafkaCandidate):
            continue
        try:
            found = live_fence(config, home, candidate)
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


def _note(config: AppConfig, home: Home, cluster: str, topic: str) -> Location:
    address = f"{config.cluster(cluster).bootstrap} {topic}"
    return home.storage / "fences" / hashlib.sha256(address.encode()).hexdigest()[:16]
