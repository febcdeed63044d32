"""`rekappa archive`: copy topics into Iceberg tables and look after them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

import click

from rekappa.cli.options import agreed, dry_run_option, home_of_tables, json_option, set_option, yes_option
from rekappa.cli.output import output
from rekappa.home import Home
from rekappa.shown import ranges
from rekappa.timeline import format_instant, parse_duration


def _duration(ctx: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _age(ctx: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    age = _duration(ctx, parameter, value)
    if age <= timedelta():
        raise click.BadParameter(
            f"{value} would drop every hour that has ended, the last one among them: say how much is to stay, like 90d"
        )
    return age


source_option = click.option("--source", metavar="NAME", help="Only this source.")


@click.group()
def archive() -> None:
    """Copy topics into Iceberg tables; look after them."""


@archive.command()
@click.argument("app")
@source_option
@click.option("--available-now", is_flag=True, help="End when everything written so far is archived.")
@set_option
@json_option
@dry_run_option
def run(
    app: str, source: str | None, available_now: bool, overrides: tuple[str, ...], as_json: bool, dry_run: bool
) -> None:
    """Archive the topics of APP until stopped. Ctrl-C, SIGTERM or `rekappa stop` ends it after the current batch.

    One process at a time archives into a table: a second one is refused while the first is at work.
    """
    from rekappa.archive.tables import routes
    from rekappa.config.load import load

    loaded, home, out = load(app, overrides=overrides), Home.locate(), output(as_json)
    found = routes(loaded, source)
    if dry_run:
        rows = [(r.source_name, r.topics, r.table) for r in found]
        out.table("Would archive", ["source", "topics", "table"], rows)
        return
    from rekappa.archive.router import RouteProgress, run_routers
    from rekappa.operations.deeds import name_run, record_deed
    from rekappa.runs.signals import stopping_on_signals
    from rekappa.sources.topics import require_topics
    from rekappa.spark.session import open_session
    from rekappa.store.record import Run

    asked = {route.source_name: route.kafka for route in found}
    require_topics(loaded.config, home, asked, lambda text: click.echo(text, err=True))
    with stopping_on_signals() as stop, out.progress("archiving") as line:
        spark = open_session(loaded.config, "archive", home)

        def report(now: list[RouteProgress]) -> None:
            line.update(
                sum(p.rows for p in now),
                text="  ".join(f"{p.source}: {p.rows:,} rows, {p.behind:,} behind" for p in now),
            )

        def started(made: Run) -> None:
            name_run(home, made.id)
            record_deed(home, "archive", made.app, made.id)
            click.echo(f"run {made.id}: Ctrl-C stops it after the current batch", err=True)

        done = run_routers(
            spark,
            loaded,
            home,
            only=source,
            available_now=available_now,
            stop=stop,
            on_start=started,
            report=report,
        )
    spark.stop()
    if out.is_json:
        out.document(done)
        return
    out.table(
        "Archived", ["source", "rows", "complete until"], [(p.source, p.rows, _until(p.complete_until)) for p in done]
    )


@archive.command()
@click.argument("app")
@click.option("--lookup", "name", metavar="NAME", help="Only this lookup.")
@click.option("--once", is_flag=True, help="Look once, instead of until stopped.")
@click.option(
    "--since", metavar="TIME", help="When the rows of a first look began to hold; their own snapshots tell otherwise."
)
@set_option
@json_option
@dry_run_option
def lookup(
    app: str,
    name: str | None,
    once: bool,
    since: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    dry_run: bool,
) -> None:
    """Keep the versions of tables that APP looks up and that do not say since when their rows hold.

    Looks at each as often as it declares (`every`) until stopped, and appends what changed to its table of versions.
    One process at a time keeps a lookup.
    """
    from rekappa.config.load import load
    from rekappa.lookups.keep import kept_lookups
    from rekappa.lookups.versions import kept_table
    from rekappa.timeline import parse_instant

    loaded, home, out = load(app, overrides=overrides), Home.locate(), output(as_json)
    found = kept_lookups(loaded.config, name)
    try:
        began = parse_instant(since) if since is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None
    if dry_run or not found:
        rows = [(one, kept.type, kept_table(loaded.config, one, kept), str(kept.every)) for one, kept in found.items()]
        out.table("Would keep", ["lookup", "type", "versions", "every"], rows)
        return
    from rekappa.lookups.keeper import VersionKeeper
    from rekappa.operations.deeds import record_deed
    from rekappa.runs.signals import stopping_on_signals
    from rekappa.spark.session import open_session

    with stopping_on_signals() as stop:
        spark = open_session(loaded.config, "archive", home)
        record_deed(home, "keep lookups", loaded.config.app, names=list(found))
        keeper = VersionKeeper(spark, loaded, home, found, began)
        looks = keeper.run(stop, once=once, tell=lambda text: click.echo(text, err=True))
    spark.stop()
    out.table(
        "Kept",
        ["lookup", "versions", "keys changed"],
        [(one.lookup, one.table, one.changed) for one in looks],
    )


@archive.command()
@click.argument("app")
@source_option
@click.option(
    "--older-than", default="1h", callback=_duration, help="Leave hours alone that ended later than this ago."
)
@set_option
@json_option
@dry_run_option
def compact(
    app: str, source: str | None, older_than: timedelta, overrides: tuple[str, ...], as_json: bool, dry_run: bool
) -> None:
    """Merge small files of APP's archive, hour by hour. Safe beside a running router."""
    from rekappa.archive.status import status as look
    from rekappa.archive.tables import routes
    from rekappa.config.load import load

    loaded, out = load(app, overrides=overrides), output(as_json)
    home = home_of_tables(loaded.config)
    found = routes(loaded, source)
    if dry_run:
        now = [look(loaded, home, route) for route in found]
        out.table(
            "Small files",
            ["source", "table", "files", "small"],
            [(s.source, s.table, s.files, s.small_files) for s in now],
        )
        return
    from rekappa.archive.compact import compact as merge
    from rekappa.operations.deeds import record_deed
    from rekappa.spark.session import open_session

    spark = open_session(loaded.config, "archive", home)
    record_deed(home, "compact", loaded.config.app)
    done = [merge(spark, route, older_than) for route in found]
    spark.stop()
    rows = [(c.source, c.table, c.files_before, c.files_after, c.bytes) for c in done]
    out.table("Compacted", ["source", "table", "files before", "files after", "bytes"], rows)


@archive.command()
@click.argument("app")
@source_option
@click.option("--older-than", required=True, callback=_age, help="Drop hours that ended longer ago, like 90d.")
@yes_option
@set_option
@json_option
@dry_run_option
def expire(
    app: str,
    source: str | None,
    older_than: timedelta,
    yes: bool,
    overrides: tuple[str, ...],
    as_json: bool,
    dry_run: bool,
) -> None:
    """Drop the oldest hours of APP's archive, on purpose and for good.

    Shows first what would go, and from when on each job can still be replayed; then asks. A window that needs a dropped
    event is refused from then on. The bytes are free when the table's snapshots from before are gone: three days later,
    or as long as a backfill that reads them is not over. Safe beside a running router.
    """
    from rekappa.archive.expire import cut_at, drop, look
    from rekappa.archive.tables import exists, routes
    from rekappa.config.bind import load_app
    from rekappa.config.load import load
    from rekappa.operations.deeds import record_deed
    from rekappa.planning.reach import reach, still_reading
    from rekappa.spark.session import open_session
    from rekappa.store.pins import pins_of
    from rekappa.store.runs import RunStore

    loaded, out = load(app, overrides=overrides), output(as_json)
    home = home_of_tables(loaded.config)
    spark = open_session(loaded.config, "archive", home)
    cut = cut_at(older_than, datetime.now(UTC))
    found = [route for route in routes(loaded, source) if exists(spark, route.table)]
    hours = [look(spark, route, cut) for route in found]
    lost = reach(spark, loaded, load_app(loaded), [route.source_name for route in found], cut)
    readers = still_reading(RunStore.open(home).runs(), [route.table for route in found], cut)
    going = [one for one in hours if one.files or one.dead_letters]
    gone = "would drop" if dry_run else "dropped"
    if not as_json:
        columns = ["source", "table", "oldest", "before", "files", "rows", "bytes", "dead letters"]
        rows = [(h.source, h.table, h.oldest, h.before, h.files, h.rows, h.bytes, h.dead_letters) for h in hours]
        out.table("Would drop" if dry_run or going else "Nothing to drop", columns, rows)
        out.table(
            "Can be replayed after it",
            ["job", "windows that start at or after", "warm-up"],
            [(one.job, one.start or "unknown", one.why) for one in lost],
        )
        for run in readers:
            out.message(f"backfill {run} reads older events: they stay on disk until it has ended or is cancelled")
    if going and not dry_run:
        agreed(
            yes, f"Drop every archived event before {format_instant(cut)}? No replay that needs one is possible then."
        )
        record_deed(home, "expire", loaded.config.app, before=format_instant(cut), rows=sum(h.rows for h in going))
        pinned = pins_of(home)()
        for route in found:
            drop(spark, route, cut, pinned)
    spark.stop()
    out.document({"state": gone if going else "nothing to drop", "sources": hours, "jobs": lost, "readers": readers})
    if going:
        out.message(f"{gone}: {sum(one.rows for one in going):,} events before {format_instant(cut)}")


@archive.command()
@click.argument("app")
@source_option
@set_option
@json_option
def status(app: str, source: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show lag, completeness, files and dead letters of APP's archive."""
    from rekappa.archive.status import status as look
    from rekappa.archive.tables import routes
    from rekappa.config.load import load

    loaded, home, out = load(app, overrides=overrides), Home.locate(), output(as_json)
    found = [look(loaded, home, route) for route in routes(loaded, source)]
    if out.is_json:
        out.document(found)
        return
    columns = ["source", "table", "lag", "rows", "files", "small", "bytes", "complete until", "dead letters"]
    rows = [
        (s.source, s.table, s.lag, s.rows, s.files, s.small_files, s.bytes, _until(s.complete_until), s.dead_letters)
        for s in found
    ]
    out.table("Archive", columns, rows)
    if any(one.lag is None for one in found):
        out.message("No lag is shown where Kafka, or the topic, can't be reached.")


@archive.command()
@click.argument("app")
@source_option
@set_option
@json_option
def overview(app: str, source: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show how APP's archive lies in time: rows by source and region, dead letters, up to when it is complete.

    From the tables' metadata: rows are spread over the time that their file covers.
    """
    from rekappa.archive.overview import overview as look
    from rekappa.archive.tables import routes
    from rekappa.config.load import load
    from rekappa.plan.picture import drawn

    loaded, home, out = load(app, overrides=overrides), Home.locate(), output(as_json)
    found = [look(loaded, home, route) for route in routes(loaded, source)]
    out.document(found)
    for one in found if not as_json else ():
        between = f"{one.start:%Y-%m-%d %H:%M} .. {one.end:%Y-%m-%d %H:%M} UTC" if one.start and one.end else "empty"
        click.echo(f"{one.source}  {between}  {_until(one.complete_until) or ''}")
        for name, cells in (*one.rows.items(), ("dead letters", one.dead)):
            if any(cells):
                click.echo(f"  {name:<14} {drawn(cells, 80)}  {sum(cells):,}")


@archive.command(name="dead")
@click.argument("app")
@source_option
@click.option("--limit", type=click.IntRange(min=1, max=10_000), default=20, show_default=True, help="At most so many.")
@set_option
@json_option
def dead(app: str, source: str | None, limit: int, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the newest messages of APP that could not be decoded: why, where Kafka had them, and their bytes (hex)."""
    from rekappa.archive.overview import dead_letters
    from rekappa.archive.tables import routes
    from rekappa.config.load import load

    loaded, home, out = load(app, overrides=overrides), Home.locate(), output(as_json)
    found = [one for route in routes(loaded, source) for one in dead_letters(loaded, home, route, limit=limit)]
    if as_json:
        out.document(found)
        return
    rows = [
        (one.source, one.region, one.topic, one.partition, one.offset, one.ingested, one.reason, one.value[:40].hex())
        for one in found
    ]
    out.table("Dead letters", ["source", "region", "topic", "part", "offset", "ingested", "reason", "bytes"], rows)


@archive.command()
@click.argument("app")
@source_option
@set_option
@json_option
@click.pass_context
def verify(ctx: click.Context, app: str, source: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Prove that APP's archive has every offset once; exit code 1 if not.

    Messages in the dead letters count as present. Where offsets are missing, Kafka is asked: those at which it has no
    message for a reader (transaction markers, compacted messages) are counted as empty, the others are gaps.
    """
    from rekappa.archive.gaps import AskedTopic, asked
    from rekappa.archive.tables import Route, exists, routes
    from rekappa.archive.verify import verify as prove
    from rekappa.config.load import load
    from rekappa.errors import ArchiveError, SourceError
    from rekappa.operations.deeds import record_deed, record_outcome

    loaded, out = load(app, overrides=overrides), output(as_json)
    home = home_of_tables(loaded.config)
    found = routes(loaded, source)
    from rekappa.spark.session import open_session

    spark = open_session(loaded.config, "archive", home)
    missing = [route.table for route in found if not exists(spark, route.table)]
    if missing:
        raise ArchiveError(f"Cannot verify {missing[0]}: it does not exist", hint=f"Fill it: rekappa archive run {app}")

    def ask(route: Route) -> list[AskedTopic]:
        try:
            return asked(loaded, home, route)
        except SourceError as error:
            click.echo(f"Kafka can't be asked about the gaps of {route.table}: {error.message}", err=True)
            return []

    record_deed(home, "verify", loaded.config.app)
    proofs = [proof for route in found for proof in prove(spark, route, partial(ask, route))]
    sound = all(proof.sound for proof in proofs)
    record_outcome(home, "verdict", loaded.config.app, archive="sound" if sound else "not sound")
    spark.stop()
    if out.is_json:
        out.document({"sound": sound, "partitions": proofs})
    else:
        columns = ["source", "region", "partition", "first", "last", "rows", "dead", "empty", "gaps", "duplicates", ""]
        rows = [
            (p.source, p.region, p.partition, p.first, p.last, p.rows, p.dead, p.empty, ranges(p.gaps),
             ranges(p.duplicates), "ok" if p.sound else f"{p.missing} missing, {p.repeated} repeated")
            for p in proofs
        ]  # fmt: skip
        out.table("Offsets", columns, rows)
        untold = sum(proof.untold for proof in proofs)
        if untold:
            out.message(f"{untold:,} missing offsets may hold no message: Kafka has them no more, or can't be asked.")
    if not sound:
        ctx.exit(1)


def _until(complete: Mapping[str, datetime]) -> str | None:
    """For a person: whole seconds, rounded down."""
    shown = [f"{region} {moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for region, moment in sorted(complete.items())]
    return ", ".join(shown) or None
