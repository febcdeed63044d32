"""What retention costs: bytes in Kafka against bytes in the archive, for the same messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.archive.completeness import Broker, clusters
from rekappa.archive.tables import Route
from rekappa.config.model import Prices
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.decode import AskedColumn
from rekappa.iceberg.listing import all_files
from rekappa.record import INGESTION
from rekappa.timeline import instant

if TYPE_CHECKING:
    from rekappa.config.load import Loaded

GB = 1e9
DAYS_PER_MONTH = 30.4375
SAMPLE = 2000


@dataclass(frozen=True, slots=True)
class Cost:
    """One source. `measured` says how Kafka's bytes are known: "log files" of the local broker, or a "sample" of
    messages before compression. Bytes are one copy; the price of Kafka counts every replica."""

    source: str
    days: float
    messages: int
    kafka_bytes_per_message: float
    archive_bytes_per_message: float
    messages_per_day: float
    measured: str
    kafka_price: float
    archive_price: float
    currency: str

    @property
    def times_smaller(self) -> float:
        return self.kafka_bytes_per_message / self.archive_bytes_per_message if self.archive_bytes_per_message else 0.0

    @property
    def saved(self) -> float:
        """The share of Kafka's price that the archive saves."""
        return 1 - self.archive_price / self.kafka_price if self.kafka_price else 0.0


def price(bytes_per_day: float, days: float, gb_month: float, replicas: int) -> float:
    """A month of keeping the last `days` days, at so much per gigabyte and month."""
    return bytes_per_day * days / GB * gb_month * replicas


def cost(loaded: Loaded, home: Home, route: Route, days: float) -> Cost:
    """Measure one source and price a retention of so many days, in Kafka and in the archive."""
    prices: Prices = loaded.config.prices
    found = clusters(loaded, home, route)
    measured, per_message = _kafka_bytes(home, found, loaded, route)
    table = load_table(loaded.config, route.table, home)
    files = list(all_files(table, (AskedColumn(table.schema().find_field(INGESTION).field_id),)))
    rows = sum(file.rows for file in files)
    each = sum(file.size for file in files) / rows if rows else 0.0
    low = min((instant(one) for file in files for one in file.lower if one is not None), default=datetime.now(UTC))
    high = max((instant(one) for file in files for one in file.upper if one is not None), default=low)
    daily = rows / max((high - low) / timedelta(days=1), 1e-6)
    return Cost(
        route.source_name,
        days,
        rows,
        per_message,
        each,
        daily,
        measured,
        price(daily * per_message, days, prices.kafka_gb_month, prices.kafka_replication),
        price(daily * each, days, prices.archive_gb_month, 1),
        prices.currency,
    )


def _kafka_bytes(home: Home, found: list[Broker], loaded: Loaded, route: Route) -> tuple[str, float]:
    local = all(loaded.config.cluster(name).bootstrap == "stack" for name in route.kafka.cluster)
    logs = [file for file in home.stack.rglob("*.log") if file.parent.name.rpartition("-")[0] in route.topics]
    if local and logs:
        # On one broker, clusters with the same name for the topic are the same topic.
        distinct = {cluster.topic: cluster for cluster in found}.values()
        kept = sum(high - low for cluster in distinct for low, high in cluster.bounds().values())
        return "log files", sum(file.stat().st_size for file in logs) / kept if kept else 0.0
    sizes = [size for cluster in found for size in cluster.sizes(SAMPLE)]
    return "sample", sum(sizes) / len(sizes) if sizes else 0.0
