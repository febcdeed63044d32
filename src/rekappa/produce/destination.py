"""Where a source's events are sent: the topic of its kafka candidate, on one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.config.model import KafkaCandidate
from rekappa.errors import InputError
from rekappa.sources.open import named_source

if TYPE_CHECKING:
    from rekappa.config.load import Loaded


@dataclass(frozen=True, slots=True)
class Destination:
    """A topic on a cluster."""

    cluster: str
    region: str
    topic: str


def destination(loaded: Loaded, source_name: str, region: str | None = None) -> Destination:
    """The topic that the live source reads: of the selected candidate, or of the first that is Kafka.

    Where several clusters stand behind it, `region` must say which; refused with the regions there are.
    """
    source, config = named_source(loaded, source_name), loaded.config
    wanted = (source.candidates.get(name) for name in (source.selected, *source.candidates))
    candidate = next((one for one in wanted if isinstance(one, KafkaCandidate)), None)
    if candidate is None:
        raise InputError(
            f"Cannot send events to source {source_name!r}: it has no kafka candidate",
            hint=f"Add one under sources.{source_name}.candidates, for example  live: {{type: kafka, topic: …}}",
        )
    regions = {config.cluster(name).region: name for name in candidate.cluster}
    if region is None and len(regions) > 1:
        raise InputError(
            f"Cannot choose a cluster for source {source_name!r}: it has {len(regions)}",
            hint=f"Say which: --region {' or --region '.join(regions)}",
        )
    chosen = region if region is not None else next(iter(regions))
    if chosen not in regions:
        raise InputError(
            f"Cannot find region {chosen!r} of source {source_name!r}", hint=f"Its regions: {', '.join(regions)}."
        )
    name = regions[chosen]
    return Destination(name, chosen, config.cluster(name).topic(candidate.topic))
