"""`rekappa demo`: the whole story, told on this machine."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rekappa.cli.console import free_port, require_packages
from rekappa.cli.demo_chain import tell_chain
from rekappa.cli.demo_words import say, step
from rekappa.cli.options import json_option
from rekappa.cli.output import Output, output

if TYPE_CHECKING:
    from rekappa.demo.story import Story
    from rekappa.demo.telling import Telling
    from rekappa.validate.result import Comparison, SinkVerdict


@click.command()
@click.argument("tale", type=click.Choice(["backfill", "rewind"]), default="backfill")
@click.option("--folder", type=click.Path(path_type=Path), help="Tell it in this new folder and keep everything.")
@click.option("--keep", is_flag=True, help="Keep everything, in a temporary folder if none is named.")
@click.option("--console", "opens", is_flag=True, help="Keep it running, and open the console on it afterwards.")
@json_option
def demo(tale: str, folder: Path | None, keep: bool, opens: bool, as_json: bool) -> None:
    """An app is wrong for an hour; the hour is replayed, proven, published, undone and published again.

    With `rewind`, another tale: two chained apps, the first wrong from 13:00 to 16:00, are rewound by one command, with
    no message wiped.

    Uses a real Kafka broker, Spark and Iceberg tables in a folder of its own, and leaves nothing running, unless
    --console asks for it: then Ctrl-C ends it.
    Takes about three minutes. Exit code 1 if the tables are not what a clean run gives.

    \b
      rekappa demo --console
      rekappa demo rewind
    """
    from rekappa.demo.chained import ChainStory
    from rekappa.demo.story import Story

    if opens and tale == "rewind":
        raise click.UsageError("--console goes with the first tale")
    if opens:
        require_packages()
    if folder is not None and folder.exists():
        raise click.BadParameter(f"{folder} exists already", param_hint="--folder")
    root = (folder or Path(tempfile.mkdtemp(prefix="rekappa-demo-"))).resolve()
    root.mkdir(parents=True, exist_ok=True)
    out = output(as_json)
    story: Telling = ChainStory(root) if tale == "rewind" else Story(root)
    kept = folder is not None or keep or opens
    try:
        found = tell_chain(story, out) if isinstance(story, ChainStory) else _tell(story, out)
    except BaseException:
        opens = False
        raise
    finally:
        with step("stop Spark" if opens else "stop the broker and Spark"):
            story.close(broker=not opens)
        if not kept:
            shutil.rmtree(root, ignore_errors=True)
    out.record(found, title="What matters")
    if found["rows_that_differ_from_a_clean_run"] or found.get("validation", "passed") != "passed":
        click.echo("error: the tables are not what a clean run gives", err=True)
        raise click.exceptions.Exit(1)
    if opens:
        open_console(root)
    if kept:
        where = shlex.quote(str(root))
        click.echo(f"everything is still in {root}. To look at it in a browser, also after a restart:", err=True)
        click.echo(f"  cd {where} && {_program()} up && {_program()} console", err=True)


def _program() -> str:
    """How to call rekappa from another folder: by its name where the shell finds it."""
    found = shutil.which("rekappa")
    return "rekappa" if found else shlex.quote(str(Path(sys.argv[0]).absolute()))


def open_console(root: Path) -> None:
    """The story's pages, with the broker still running, until Ctrl-C."""
    import signal
    import webbrowser

    from rekappa.console.serve import Serving, serve
    from rekappa.home import Home
    from rekappa.stack.broker import down
    from rekappa.store.runs import RunStore

    home = Home(root / ".rekappa")
    run = RunStore.existing(home).run("last").id

    def started(address: str) -> None:
        click.echo(f"open {address}", err=True)
        click.echo(f"  the story: /runs/{run} with its Validation and Publish; /apps/plays/backfill", err=True)
        if sys.stderr.isatty():
            webbrowser.open(f"{address}&next=/runs/{run}/publish")

    # Spark has left a handler of Ctrl-C that fails once Spark is stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        serve(home, root, Serving("127.0.0.1", free_port()), started)
    finally:
        down(home)


def _tell(story: Telling, out: Output) -> dict[str, Any]:
    from rekappa.demo.story import EXPECTED, RIGHT, SHAPE, START, WINDOW, WRONG, Story
    from rekappa.plan.report import plan_report
    from rekappa.timeline import format_instant
    from rekappa.validate.result import Cause

    assert isinstance(story, Story)
    began = time.monotonic()
    say(f"An app joins impressions with the plays that followed within ten minutes. From {format_instant(START)} on:")
    with step("rekappa up", "a Kafka broker of our own"):
        bootstrap = story.up()
        assert story.spark
    with step("rekappa run plays", "one hour of events, all well"):
        story.run_hour(0, bootstrap)
    say(f"Somebody deploys a bug: {RIGHT} became {WRONG}. It runs for an hour.")
    story.deploy(wrong=True)
    with step("rekappa run plays", "one hour of events, wrong"):
        story.run_hour(1, bootstrap)
    say("The fix is deployed. But production holds an hour of wrong rows.")
    story.deploy(wrong=False)
    with step("rekappa run plays", "one hour of events, right again"):
        story.run_hour(2, bootstrap)
    with step("rekappa archive run plays", f"Kafka's {story.sent:,} events into Iceberg"):
        story.archive()
    _show_archive(story, out)

    say("Plan first; nothing changes yet.")
    with step("rekappa plan plays"):
        plan = story.plan()
    if not out.is_json:
        for line in plan_report(plan, width=min(shutil.get_terminal_size().columns, 100)).lines():
            click.echo("    " + line)
    with step("rekappa backfill plays", "the same code over the window, into staging"):
        started = time.monotonic()
        run = story.backfill(plan)
        backfill_seconds = time.monotonic() - started
    with step(f"rekappa validate RUN --expect {EXPECTED}", "staging against production; control runs say why"):
        verdict = story.validate(run)
    before = _compared(verdict)
    say(
        f"  {before.different:,} of {before.production:,} rows differ, in {', '.join(before.columns) or 'no column'}; "
        f"{before.missing:,} missing, {before.extra:,} extra: the bug, made visible."
    )
    causes = ", ".join(f"{before.caused_by(cause):,} {cause}" for cause in (Cause.CODE, Cause.LATE, Cause.UNEXPLAINED))
    say(f"  {causes}: {verdict.outcome}, because that was expected")
    with step("rekappa publish RUN", "one atomic commit"):
        effect = story.publish(run)
    say(f"  {effect.changed:,} rows changed, {effect.added:,} added, {effect.removed:,} removed")
    with step("rekappa validate RUN"):
        after = _compared(story.validate(run))
    with step("rekappa undo RUN"):
        story.undo(run)
    undone = _compared(story.validate(run))
    say(f"  production matches again as before: {undone.match:.2f} %")
    with step("rekappa publish RUN", "and published again"):
        story.publish(run)
    with step("verify", "the right code over all of Kafka, into a table of its own"):
        differing = story.clean_run()
    with step("compare", "the same window as a hand-written batch job"):
        started = time.monotonic()
        story.by_hand()
        by_hand = time.monotonic() - started
    rows = sum(source.rows for job in plan.jobs for source in job.sources)
    return {
        "window": str(WINDOW),
        "validation": str(verdict.outcome),
        "rows_by_the_change_in_code": before.caused_by(Cause.CODE),
        "rows_late_in_production": before.caused_by(Cause.LATE),
        "rows_unexplained": before.unexplained,
        "match_before": f"{before.match:.2f} %",
        "match_after": f"{after.match:.2f} %",
        "rows_that_differ_from_a_clean_run": differing,
        "events": story.sent,
        "events_per_minute_live": SHAPE.per_minute,
        "events_per_second_backfill": round(rows / backfill_seconds),
        "backfill_seconds": round(backfill_seconds, 1),
        "hand_written_batch_seconds": round(by_hand, 1),
        "demo_seconds": round(time.monotonic() - began),
    }


def _compared(verdict: SinkVerdict) -> Comparison:
    assert verdict.comparison is not None, "an Iceberg table can be compared"
    return verdict.comparison


def _show_archive(story: Story, out: Output) -> None:
    from rekappa.archive.cost import cost
    from rekappa.archive.status import status
    from rekappa.archive.tables import routes
    from rekappa.demo.story import APP

    loaded, _ = story.load(APP)
    if out.is_json:
        return
    known = [status(loaded, story.home, route) for route in routes(loaded)]
    rows = [(one.source, one.rows, one.files, one.bytes, one.lag, one.dead_letters) for one in known]
    out.table("rekappa archive status plays", ["source", "rows", "files", "bytes", "lag", "dead letters"], rows)
    prices = [cost(loaded, story.home, route, 30) for route in routes(loaded)]
    out.table(
        "rekappa cost plays --days 30",
        ["source", "bytes in Kafka", "bytes in the archive", "times smaller", "saved"],
        [
            (
                one.source,
                round(one.kafka_bytes_per_message, 1),
                round(one.archive_bytes_per_message, 1),
                round(one.times_smaller, 1),
                f"{one.saved:.0%}",
            )
            for one in prices
        ],
    )
