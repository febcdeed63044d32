"""Sending generated events to Kafka, each at its own place in the past.

python -m rekappa.demo.produce take_rate --start 2026-11-01T00:00Z --hours 3
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from rekappa.demo.events import STORIES, Event, Traffic, in_arrival_order
from rekappa.home import Home
from rekappa.produce.send import send
from rekappa.produce.spool import SpooledMessage
from rekappa.produce.topics import create_topics
from rekappa.timeline import Window, parse_duration, parse_instant


def produce(bootstrap: str | Mapping[str, str], events: Iterable[Event], prefixes: bool = True) -> int:
    """Send events in arrival order with their arrival as Kafka's timestamp; answers how many, once all are stored.

    `bootstrap` is an address, or the options of confluent-kafka's clients.
    """
    messages = (
        SpooledMessage(
            f"{event.region}.{event.topic}" if prefixes else event.topic,
            str(event.key).encode(),
            event.value(),
            int(event.ingested.timestamp() * 1000),
        )
        for event in events
    )
    return send({"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap, messages)


@click.command()
@click.argument("story", type=click.Choice(sorted(STORIES)))
@click.option("--start", required=True, help="Where in time to place the events, for example 2026-11-01T00:00Z.")
@click.option("--hours", default=3.0, show_default=True, help="How many hours of event time to fill.")
@click.option("--per-minute", default=100, show_default=True, help="Impressions a minute.")
@click.option("--late", default=0.0, show_default=True, help="Share of events that come 20 to 40 minutes late.")
@click.option("--seed", default=7, show_default=True)
@click.option("--bootstrap", default=None, help="Kafka's address; the local stack's broker if not given.")
def main(story: str, start: str, hours: float, per_minute: int, late: float, seed: int, bootstrap: str | None) -> None:
    """Fill Kafka with made-up events of a reference app."""
    from rekappa.stack.state import stack_state

    moment = parse_instant(start)
    window = Window(moment, moment + parse_duration(f"{hours}h"))
    state = stack_state(Home.locate())
    if bootstrap is None and state is None:
        raise click.ClickException("the local stack is not running; start it with `rekappa up`")
    address = bootstrap or (state.bootstrap if state else "")
    events = in_arrival_order(STORIES[story](window, Traffic(per_minute=per_minute, late=late, seed=seed)))
    create_topics(address, {f"{event.region}.{event.topic}" for event in events})
    click.echo(f"sent {produce(address, events):,} events of {window}")


if __name__ == "__main__":
    main()
