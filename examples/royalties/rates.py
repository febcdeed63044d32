"""Make the table of rates: what a play of each show earns, and since when.

python examples/royalties/rates.py                   every show at 5 cents
python examples/royalties/rates.py 9 2026-11-01T01:30Z     from then on 9 cents
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

TABLE = "lake.royalties.rates"


def set_rate(spark: SparkSession, table: str, cents: int, since: str) -> None:
    """A new rate is a new row: what was there stays, and holds until then."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (show_id BIGINT, cents BIGINT, since TIMESTAMP) USING iceberg")
    spark.sql(f"INSERT INTO {table} SELECT id, {cents}, TIMESTAMP '{since}' FROM range(0, 500)")


if __name__ == "__main__":
    from rekappa.config.load import load
    from rekappa.home import Home
    from rekappa.spark.session import open_session

    cents, since = (sys.argv[1:] + ["5", "2026-01-01T00:00Z"][len(sys.argv) - 1 :])[:2]
    session = open_session(load(Path(__file__).parent).config, "live", Home.locate())
    set_rate(session, TABLE, int(cents), since)
    session.stop()
