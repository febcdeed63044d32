"""A verdict as a run's record keeps it, back as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from rekappa.expect import CodeChange
from rekappa.timeline import Window
from rekappa.validate.over_time import OverTime, Stretches
from rekappa.validate.result import VERSION, Cause, Comparison, Late, Outcome, Sample, SinkVerdict, Verdict


def verdict_of(kept: Mapping[str, Any] | None) -> Verdict | None:
    """None if there is none, or if another version of rekappa wrote it."""
    if not kept or kept.get("version") != VERSION:
        return None
    window = Window.parse(kept["window"]["start"], kept["window"]["end"])
    sinks = tuple(_sink(one) for one in kept["sinks"])
    at = datetime.fromisoformat(kept["at"])
    return Verdict(kept["run"], kept["app"], window.start, window.end, at, sinks)


def _sink(kept: Mapping[str, Any]) -> SinkVerdict:
    return SinkVerdict(
        kept["sink"],
        kept["production"],
        _comparison(kept["comparison"]) if kept["comparison"] else None,
        Outcome(kept["outcome"]),
        tuple(kept["why"]),
        kept["expected"],
        Late(kept["late"]),
        kept["staging"],
        kept["snapshot"],
        datetime.fromisoformat(kept["open_from"]) if kept["open_from"] else None,
    )


def _comparison(kept: Mapping[str, Any]) -> Comparison:
    code = kept["code"]
    told = {one.name: kept[one.name] for one in fields(Comparison) if one.name in kept}
    return Comparison(
        **{
            **told,
            "key": tuple(kept["key"]),
            "causes": {Cause(cause): count for cause, count in kept["causes"].items()},
            "code": CodeChange(
                {tuple(one["columns"]): one["rows"] for one in code["changed"]}, code["missing"], code["extra"]
            ),
            "samples": tuple(_sample(one) for one in kept["samples"]),
            "notes": tuple(kept["notes"]),
            "controls": tuple(kept["controls"]),
            "over_time": _over_time(kept["over_time"]) if kept.get("over_time") else None,
        }
    )


def _sample(kept: Mapping[str, Any]) -> Sample:
    cause = Cause(kept["cause"])
    return Sample(kept["kind"], cause, tuple(kept["columns"]), kept["production"], kept["staging"])


def _over_time(kept: Mapping[str, Any]) -> OverTime:
    counts = [{name: tuple(cells) for name, cells in kept[key].items()} for key in ("causes", "columns")]
    most = max((len(cells) for each in counts for cells in each.values()), default=0)
    stretches = Stretches(datetime.fromisoformat(kept["start"]), timedelta(seconds=kept["seconds"]), most)
    return OverTime(stretches, *counts)
