"""`rekappa produce`: a file's rows as events of a source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rekappa.cli.options import app_argument, dry_run_option, json_option, set_option
from rekappa.cli.output import Output, output
from rekappa.home import Home
from rekappa.timeline import format_instant

if TYPE_CHECKING:
    from rekappa.produce.destination import Destination
    from rekappa.produce.events import Checked
    from rekappa.produce.spool import Spool


@click.command()
@app_argument
@click.argument("source")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--time", metavar="COLUMN", help="When each event came: Kafka's timestamp. The source's event time.")
@click.option(
    "--time-format",
    "formats",
    multiple=True,
    metavar="[COLUMN=]FORMAT",
    help="How times are written, where it is not ISO 8601 or a number since 1970: '%d.%m.%Y %H:%M:%S', epoch-s, "
    "epoch-ms, epoch-us, epoch-ns. Of the --time column, or of the one named.",
)
@click.option("--zone", default="UTC", show_default=True, help="The time zone of times that name none.")
@click.option("--key", metavar="COLUMN", help="The message's key: events of one key stay in order.")
@click.option("--region", help="Which cluster, where the source has several.")
@click.option("--delimiter", metavar="CHARACTER", help="Between the cells of a CSV file, if not a comma.")
@click.option("--skip-bad", is_flag=True, help="Leave out rows that are no events of the source.")
@click.option("--partitions", type=click.IntRange(1), default=2, show_default=True, help="Of a topic that is made.")
@set_option
@dry_run_option
@json_option
def produce(
    app: str,
    source: str,
    file: Path,
    time: str | None,
    formats: tuple[str, ...],
    zone: str,
    key: str | None,
    region: str | None,
    delimiter: str | None,
    skip_bad: bool,
    partitions: int,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send the rows of FILE (.csv, .tsv, .jsonl, .parquet) to the topic that SOURCE of APP reads live.

    Values are converted by the source's schema and sent in the order of --time, which becomes Kafka's timestamp, the
    ingestion time of everything that reads them: events can be placed at any past time. The whole file is checked
    first; nothing is sent if a row is bad. A topic that does not exist is made. Sent twice, events are there twice.

    \b
      rekappa produce shop orders orders.csv --time ordered_at --key customer
      rekappa produce shop orders old.csv --time day --time-format '%d.%m.%Y' --zone Europe/Berlin
    """
    from rekappa.config.load import load
    from rekappa.operations.deeds import record_deed
    from rekappa.produce.destination import destination
    from rekappa.produce.events import Reading, Shaper, check, require_sound
    from rekappa.produce.files import open_rows
    from rekappa.produce.registered import event_encoder
    from rekappa.produce.spool import Spool
    from rekappa.sources.kafka import client_options
    from rekappa.sources.open import named_source

    loaded, home, out = load(app, overrides=overrides), Home.locate(), output(as_json)
    found = named_source(loaded, source)
    rows = open_rows(file, delimiter)
    reading = Reading(time, _formats(formats), zone, key)
    where = destination(loaded, source, region)
    shaper = Shaper(found, loaded.folder, event_encoder(loaded, found, where.topic), rows, reading)
    with Spool(where.topic) as spool:
        checked = check(rows, shaper, spool)
        require_sound(rows, checked, skip_bad)
        if not dry_run:
            record_deed(home, "produce", loaded.config.app, topic=where.topic, events=checked.sound)
        made = _send(
            out, where, client_options(loaded.config, where.cluster, home), checked, spool, partitions, dry_run
        )
    _show(out, {"app": loaded.config.app, "source": source}, where, checked, made)


def _formats(told: tuple[str, ...]) -> dict[str, str]:
    """By column; a pattern has a `%` before any `=`, a column's name has none."""
    found = {}
    for text in told:
        column, named, pattern = text.partition("=")
        named_alone = named and "%" not in column
        found.update({column: pattern} if named_alone else {"": text})
        _require_format(pattern if named_alone else text)
    return found


def _require_format(pattern: str) -> None:
    """Refuse what is no pattern before it is held against the first row."""
    from datetime import datetime

    try:
        datetime.strptime("", pattern)
    except ValueError as error:
        if "directive" in str(error) or "stray" in str(error):
            raise click.BadParameter(f"{error}", param_hint="--time-format") from None


def _send(
    out: Output,
    where: Destination,
    options: dict[str, str],
    checked: Checked,
    spool: Spool,
    partitions: int,
    dry_run: bool,
) -> dict[str, Any]:
    from rekappa.produce.send import send
    from rekappa.produce.topics import create_topics, for_the_past, require_kept, topic_exists

    assert checked.first is not None and checked.last is not None, "there is something to send"  # noqa: PT018
    there = topic_exists(options, where.topic)
    if there:
        require_kept(options, where.topic, checked.first, checked.last)
    if dry_run:
        example = next(iter(spool.messages()))
        shown = {"key": example.key and example.key.decode(), "value": example.value.decode(errors="backslashreplace")}
        return {"dry_run": True, "makes_topic": not there, "sent": 0, "example": shown}
    if not there:
        kept = for_the_past(checked.first)
        create_topics(options, [where.topic], partitions, kept)
        more = ", which keeps events of any age (retention.ms=-1)" if kept else ""
        click.echo(f"made topic {where.topic} with {partitions} partitions{more}", err=True)
    stored = 0

    def report(now: int) -> None:
        nonlocal stored
        stored = now
        line.update(now, text=f"{now:,} events")

    try:
        with out.progress(f"sending to {where.topic}", len(spool)) as line:
            sent = send(options, spool.messages(), report)
    except KeyboardInterrupt:
        click.echo(
            f"at least {stored:,} of {len(spool):,} events were sent: sent again, they are there twice", err=True
        )
        raise
    return {"dry_run": False, "makes_topic": not there, "sent": sent}


def _show(out: Output, named: dict[str, str], where: Destination, checked: Checked, made: dict[str, Any]) -> None:
    if out.is_json:
        place = {"cluster": where.cluster, "region": where.region, "topic": where.topic}
        out.document({**named, **place, **made, "checked": checked, "bad_rows": checked.bad_rows})
        return
    assert checked.first is not None and checked.last is not None, "there was something to send"  # noqa: PT018
    for one in checked.bad:
        out.message(f"left out: {one}")
    if checked.bad_rows > len(checked.bad):
        out.message(f"left out: {checked.bad_rows - len(checked.bad)} more")
    if checked.left_out:
        out.message(f"columns that the schema does not declare were left out: {', '.join(checked.left_out)}")
    if checked.absent:
        out.message(f"columns that the file does not have are null: {', '.join(checked.absent)}")
    span = f"of {format_instant(checked.first)} to {format_instant(checked.last)}"
    if made["dry_run"]:
        new = " (which does not exist and would be made)" if made["makes_topic"] else ""
        out.message(f"would send {checked.sound:,} events {span} to topic {where.topic}{new}, the first of them:")
        out.record(made["example"])
        return
    out.message(f"sent {made['sent']:,} event{'' if made['sent'] == 1 else 's'} {span} to topic {where.topic}")
    out.message(f"next: rekappa archive run {named['app']} --available-now, or rekappa run {named['app']}")
