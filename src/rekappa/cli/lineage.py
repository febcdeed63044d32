"""`rekappa lineage`: which messages of a topic count."""

from __future__ import annotations

import click

from rekappa.cli.options import dry_run_option, json_option
from rekappa.cli.output import output
from rekappa.errors import RunError
from rekappa.home import Home


@click.command()
@click.argument("topic")
@click.option("--app", metavar="APP", help="The app whose configuration says where the cluster is.")
@click.option("--cluster", metavar="NAME", help="The cluster, if the topic is on several.")
@click.option("--accept", metavar="RUN/QUERY", help="Let the messages of a run count that nobody has announced.")
@dry_run_option
@json_option
def lineage(topic: str, app: str | None, cluster: str | None, accept: str | None, dry_run: bool, as_json: bool) -> None:
    """Which messages of TOPIC count, of those that rekappa's sinks sent.

    Every such message has the headers rekappa-run, rekappa-query and rekappa-batch. A rewind wipes no message: it says
    in the topic rekappa-lineage, on the same cluster, up to which batch each run counts, and readers drop the rest.
    Messages without these headers count.

    \b
      rekappa lineage plays
      rekappa lineage plays --app examples/take_rate --json
    """
    from rekappa.recovery.topics import places_of
    from rekappa.sources.fenced import lineage_topic
    from rekappa.store.runs import RunStore

    out, home = output(as_json), Home.locate()
    found = [one for one in places_of(home, topic, app) if cluster in (None, one.cluster)]
    if not found:
        raise RunError(
            f"Cannot find topic {topic!r}" + (f" on cluster {cluster!r}" if cluster else "") + " in any known app",
            hint="Name an app that reads or writes it: --app FOLDER",
        )
    at = found[0]
    place = lineage_topic(at.loaded.config, home, at.cluster)
    if accept is not None:
        run, _, query = accept.partition("/")
        if not run or not query:
            raise click.BadParameter("write RUN/QUERY, as the headers of its messages say", param_hint="--accept")
        if dry_run:
            out.record({"topic": topic, "cluster": at.cluster, "would_accept": accept})
            return
        place.require_compacted()
        place.begin(topic, (run, query))
    fence = place.fence(topic)
    drawn = {(run, line.query): line.app for line in fence.lines for run in line.until}
    began = {run.id: run.app for run in RunStore.open(home).runs()}
    rows = [
        {
            "app": drawn.get((run, query), began.get(run, "")), "query": query, "run": run,
            "counts": _counts(until), "until": until,
        }
        for (run, query), until in sorted(fence.limits.items())
    ]  # fmt: skip
    if out.is_json:
        out.document({"topic": topic, "cluster": at.cluster, "senders": rows})
        return
    shown = [(one["app"], one["query"], one["run"], one["counts"]) for one in rows]
    out.table(f"What counts of {topic} on {at.cluster}", ["app", "query", "run", "counts"], shown)
    if not rows:
        out.message("no sink of rekappa has written to it: every message counts that has none of its headers")


def _counts(until: int | None) -> str:
    if until is None:
        return "all"
    return f"up to batch {until}" if until >= 0 else "nothing"
