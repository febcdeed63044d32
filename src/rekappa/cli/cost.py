"""`rekappa cost`: measured bytes in Kafka and in the archive, and what keeping them costs."""

from __future__ import annotations

from dataclasses import asdict

import click

from rekappa.cli.options import NumberRange, app_argument, json_option, set_option
from rekappa.cli.output import output
from rekappa.home import Home


@click.command()
@app_argument
@click.option("--days", type=NumberRange(0, 36_500, min_open=True), default=30.0, help="Retention to price.")
@set_option
@json_option
def cost(app: str, days: float, overrides: tuple[str, ...], as_json: bool) -> None:
    """Compare a retention of so many days in Kafka with the archive, from measured bytes.

    Prices are per month and come from `prices` in rekappa.yaml; Kafka's count every replica.
    """
    from rekappa.archive.cost import cost as measure
    from rekappa.archive.tables import routes
    from rekappa.config.load import load

    loaded, home, out = load(app, overrides=overrides), Home.locate(), output(as_json)
    found = [measure(loaded, home, route, days) for route in routes(loaded)]
    if out.is_json:
        out.document([asdict(one) | {"times_smaller": one.times_smaller, "saved": one.saved} for one in found])
        return
    columns = ["source", "messages", "Kafka bytes each", "known from", "archive bytes each", "times smaller",
               f"Kafka {days:g} days", f"archive {days:g} days", "saved"]  # fmt: skip
    rows = [
        (c.source, c.messages, round(c.kafka_bytes_per_message, 1), c.measured, round(c.archive_bytes_per_message, 1),
         round(c.times_smaller, 1), _money(c.kafka_price, c.currency), _money(c.archive_price, c.currency),
         f"{c.saved:.1%}")
        for c in found
    ]  # fmt: skip
    out.table("Cost of retention, per month", columns, rows)


def _money(amount: float, currency: str) -> str:
    return f"{amount:,.2f} {currency}" if amount >= 1 else f"{amount:.4f} {currency}"
