"""`rekappa config`: check an app and show what it will run with."""

from __future__ import annotations

import json
from typing import Any

import click

from rekappa.cli.options import app_argument, json_option, set_option
from rekappa.cli.output import output
from rekappa.home import Home


@click.command()
@app_argument
@click.option("--explain", is_flag=True, help="Show every value and where it came from.")
@click.option("--keep", metavar="KEY=VALUE", help="Keep a value for the next detached runs and the console.")
@click.option("--forget", metavar="KEY", help="Take a kept value back.")
@set_option
@json_option
def config(
    app: str, explain: bool, keep: str | None, forget: str | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Check APP's configuration against its code, and show it.

    Values come from rekappa.yaml, then from environment variables like
    REKAPPA__SOURCES__IMPRESSIONS__SELECTED, then from --set. Secrets are masked. What --keep keeps is
    given with --set to `rekappa start` and to what the console starts.
    """
    from rekappa.config.bind import load_app, queries
    from rekappa.config.explain import masked, settings
    from rekappa.config.load import load, shorter

    if keep is not None or forget is not None:
        _keep(app, keep, forget)
    loaded = load(app, overrides=overrides)
    made_app = load_app(loaded)
    bound = queries(loaded.config, made_app)
    out = output(as_json)
    if explain:
        rows = [(i.key, i.value if as_json else _written(i.value), str(i.origin)) for i in settings(loaded)]
        out.table(f"{loaded.config.app}: {shorter(loaded.file)}", ["key", "value", "origin"], rows)
        return
    if out.is_json:
        read = {name: list(job.sources) for name, job in made_app.jobs.items()}
        made = [
            {"query": q.name, "job": q.job, "output": q.output, "sink": q.sink, "sources": read[q.job]} for q in bound
        ]
        out.document(
            {"app": loaded.config.app, "file": shorter(loaded.file), "queries": made} | {"config": masked(loaded)}
        )
        return
    sources = [
        (n, s.selected, s.candidates[s.selected].type, list(s.candidates)) for n, s in loaded.config.sources.items()
    ]
    out.table(f"Sources of {loaded.config.app}", ["source", "selected", "type", "candidates"], sources)
    choices = loaded.config.choices
    sinks = [
        (q.job, q.output, q.sink, choices[q.sink].selected, choices[q.sink].sink.type, list(choices[q.sink].candidates))
        for q in bound
    ]
    out.table("Queries", ["job", "output", "sink", "selected", "type", "candidates"], sinks)
    out.message(f"{shorter(loaded.file)} is fine. --explain shows every value.")


def _keep(app: str, keep: str | None, forget: str | None) -> None:
    from pathlib import Path

    from rekappa.config.load import load
    from rekappa.operations.deeds import acting
    from rekappa.operations.overrides import drop_override, keep_override

    found = load(app)
    core = acting(Home.locate(), Path(found.folder))
    if keep is not None:
        keep_override(core, found.config.app, keep)
    if forget is not None:
        drop_override(core, found.config.app, forget)


def _written(value: Any) -> str:
    """A value as rekappa.yaml would have it."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
