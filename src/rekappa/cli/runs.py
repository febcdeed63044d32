"""`rekappa runs`: which runs there were; one of them, with the code that it ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from rekappa.cli.options import json_option
from rekappa.cli.output import Output, output
from rekappa.errors import RunError
from rekappa.home import Home

if TYPE_CHECKING:
    from rekappa.store.record import Run, Start
    from rekappa.store.runs import RunStore

_QUERY = ("query", "batch", "rows", "rows_per_second", "lag", "watermark", "late_rows")
_ROUTE = ("source", "batch", "rows", "behind", "complete_until")
_JOB = ("job", "mode", "done", "total", "rows", "late_rows", "reached", "rows_per_second")


@click.command()
@click.argument("run", required=False)
@click.option("--app", default=None, help="Only the runs of this app.")
@click.option("--diff", "other", metavar="OTHER", default=None, help="How the code of RUN differs from that of OTHER.")
@json_option
def runs(run: str | None, app: str | None, other: str | None, as_json: bool) -> None:
    """List runs, newest first; with RUN, show that one: its code, window, validation, publication, progress.

    A live run that went on with changed code has several versions; --diff compares the last of each run.

    \b
      rekappa runs backfill_20261101_130000_ab12
      rekappa runs backfill_20261101_130000_ab12 --diff live_20261101_120000_cd34
    """
    from rekappa.operations.runs import runs_document
    from rekappa.store.runs import RunStore

    home, out = Home.locate(), output(as_json)
    if other is not None:
        if run is None:
            raise click.UsageError("--diff needs two runs: rekappa runs RUN --diff OTHER")
        _show_diff(out, home, run, other)
        return
    if run is not None:
        show_run(out, home, run)
        return
    store = RunStore.existing(home)
    found = store.runs(app)
    if app is not None and not found:
        known = ", ".join(sorted({one.app for one in store.runs()})) or "none"
        click.echo(f"no app {app!r} has run here; those that have: {known}", err=True)
    if out.is_json:
        out.document(runs_document(found))
        return
    rows = [
        (one.id, one.app, one.owner, one.kind, one.state, one.created, one.ended,
         f"{one.pid} on {one.host}" if one.pid else None, one.error)
        for one in found
    ]  # fmt: skip
    out.table("Runs", ["run", "app", "owner", "kind", "state", "created", "ended", "process", "error"], rows)


def show_run(out: Output, home: Home, run_id: str) -> None:
    """One run and all that is known of it."""
    from rekappa.operations.runs import run_document
    from rekappa.store.runs import RunStore

    store = RunStore.existing(home)
    if out.is_json:
        out.document(run_document(store, run_id))
        return
    found = store.run(run_id)
    starts, controls = store.starts(found.id), store.controls(found)
    out.record(dict(_facts(found, controls)), title="Run")
    if starts:
        rows = [(one.query or "all", one.batch, one.code.hash and one.code.hash[:12], *_git(one)) for one in starts]
        out.table("Code", ["query", "from batch", "code", "commit", "changed since", "rekappa", "Spark"], rows)
    for start in {one.code.hash: one for one in starts}.values():
        if start.code.reason:
            out.message(f"not kept: {start.code.reason}")
        if start.code.left_out:
            out.message(f"left out of the kept code: {', '.join(start.code.left_out)}")
    _show_progress(out, found)


def _git(start: Start) -> tuple[Any, ...]:
    code = start.code
    return code.commit and code.commit[:12], code.dirty, code.rekappa, code.spark


def _facts(run: Run, controls: list[Run]) -> Iterator[tuple[str, Any]]:
    spec = run.spec
    yield "run", run.id
    yield "kind", run.kind
    yield "state", run.state
    yield "app", run.app
    if run.owner:
        yield "owner", run.owner
    yield "folder", run.folder
    yield "created", run.created
    if run.pid:
        yield "process", f"{run.pid} on {run.host}"
    if run.ended:
        yield "ended", run.ended
    if spec.get("start"):
        yield "window", f"{spec['start']} .. {spec['end']}"
        yield "regions", list(spec.get("regions") or ()) or "all"
        yield "mode", _modes(spec)
    if spec.get("elsewhere"):
        told = ", ".join(f"{sink} to {candidate!r}" for sink, candidate in spec["elsewhere"].items())
        yield "not production", f"it writes {told}"
    if spec.get("control_of"):
        yield "control of", f"{spec['control_of']} ({spec.get('role')})"
    if run.kind == "backfill":
        yield "validation", _validation(run.validation)
        yield "publication", _publication(run.publication)
    if controls:
        yield "controls", [f"{one.id} ({one.spec.get('role')}, {one.state})" for one in controls]
    if run.error:
        yield "error", run.error


def _modes(spec: Mapping[str, Any]) -> str:
    modes = spec.get("modes") or {}
    return ", ".join(f"{job}: {mode}" for job, mode in modes.items()) or str(spec.get("mode"))


def _validation(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return "not validated"
    return f"{verdict.get('outcome') or ('passed' if verdict.get('passed') else 'failed')} at {verdict.get('at')}"


def _publication(told: Mapping[str, Any] | None) -> str:
    return f"{told['state']} at {told.get('at')}" if told and told.get("state") else "not published"


def _show_progress(out: Output, run: Run) -> None:
    for title, columns in (("queries", _QUERY), ("routes", _ROUTE), ("jobs", _JOB)):
        rows = [[one.get(column) for column in columns] for one in run.progress.get(title) or ()]
        if rows:
            out.table("Progress", [column.replace("_", " ") for column in columns], rows)


def _show_diff(out: Output, home: Home, run: str, other: str) -> None:
    from rekappa.store.code_diff import code_diff
    from rekappa.store.kept import kept_files
    from rekappa.store.runs import RunStore

    store = RunStore.existing(home)
    before, after = _last(store, other), _last(store, run)
    text = code_diff(kept_files(home, before[1]), kept_files(home, after[1]), (before[0], after[0]))
    out.document({"run": after[0], "other": before[0], "code": after[1], "other_code": before[1], "diff": text})
    if not out.is_json:
        click.echo(text or f"the same code: {after[1][:12]}", nl=not text)


def _last(store: RunStore, run_id: str) -> tuple[str, str]:
    """The run and its newest code; refuses one whose code is not kept."""
    run = store.run(run_id)
    starts = store.starts(run.id)
    if not starts or starts[-1].code.hash is None:
        why = starts[-1].code.reason if starts else "it was not recorded"
        raise RunError(f"Cannot show the code of run {run.id}: {why}")
    return run.id, starts[-1].code.hash
