"""An app and its jobs: what may be declared, and what a job may return."""

from __future__ import annotations

from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import pytest

import rekappa
from rekappa import App
from rekappa.errors import AppError


def frame(name: str) -> Any:
    """Enough of a DataFrame for a job that does not compute."""
    return SimpleNamespace(isStreaming=True, name=name)


def test_the_public_surface_is_what_it_says() -> None:
    assert rekappa.__all__ == ["Answers", "App", "Lookup", "RekappaError", "__version__", "limit_calls", "rate_limit"]
    for name in rekappa.__all__:
        assert hasattr(rekappa, name)


def test_parameters_are_sources_and_the_function_stays_a_function() -> None:
    app = App("a")

    @app.job
    def joined(left: Any, *, right: Any, limit: int = 3) -> Any:
        """Join them."""
        return frame(f"{left.name}+{right.name}+{limit}")

    job = app.jobs["joined"]
    assert job.sources == ("left", "right")
    assert job.outputs == ("joined",)
    assert job.doc == "Join them."
    assert joined(frame("l"), right=frame("r"), limit=1).name == "l+r+1"
    assert job.results({"left": frame("l"), "right": frame("r")})["joined"].name == "l+r+3"


def test_several_results_by_name() -> None:
    app = App("a")

    @app.job(sinks=["plays", "rates"])
    def both(events: Any) -> dict[str, Any]:
        return {"plays": events, "rates": events}

    assert set(app.jobs["both"].results({"events": frame("e")})) == {"plays", "rates"}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (frame("x"), "returned one"),
        ({"plays": frame("x")}, "its sinks are"),
        ({"plays": frame("x"), "rates": None}, "NoneType for 'rates'"),
    ],
)
def test_results_that_do_not_fit_are_refused(made: Any, words: str) -> None:
    app = App("a")

    @app.job(sinks=["plays", "rates"])
    def both(events: Any) -> Any:
        return made

    with pytest.raises(AppError, match=words):
        app.jobs["both"].results({"events": frame("e")})


def test_a_job_that_forgets_to_return_is_named() -> None:
    app = App("a")

    @app.job
    def silent(events: Any) -> None: ...

    with pytest.raises(AppError, match="'silent' returned NoneType"):
        app.jobs["silent"].results({"events": frame("e")})


async def later(events: Any) -> Any:
    return events


async def later_and_later(events: Any) -> Any:
    yield events


def one_by_one(events: Any) -> Any:
    yield events


@pytest.mark.parametrize(
    ("body", "kind"),
    [(later, "an async function"), (later_and_later, "an async generator"), (one_by_one, "a generator")],
)
def test_a_job_must_be_a_plain_function(body: Any, kind: str) -> None:
    with pytest.raises(AppError, match=f"Job '{body.__name__}' is {kind}") as refused:
        App("a").job(body)
    assert "plain function" in (refused.value.hint or "")
    with pytest.raises(AppError, match=f"is {kind}"):
        App("a").job(wraps(body)(lambda events: body(events)))


@pytest.mark.parametrize("sinks", ["plays", "", [""], [3], b"plays"])
def test_sinks_is_a_list_of_names(sinks: Any) -> None:
    with pytest.raises(AppError, match="must be a list of names") as refused:
        App("a").job(sinks=sinks)
    assert 'sinks=["plays", "rates"]' in (refused.value.hint or "")


def test_jobs_that_can_not_be_bound_are_refused_when_declared() -> None:
    app = App("a")
    with pytest.raises(AppError, match="name each source"):
        app.job(lambda: None)
    with pytest.raises(AppError, match="not 'rest'"):
        app.job(lambda *rest: None)
    with pytest.raises(AppError, match="a sink twice"):
        app.job(sinks=["x", "x"])(lambda events: None)
    app.job(lambda events: None)
    with pytest.raises(AppError, match="two jobs named"):
        app.job(lambda other: None)


@pytest.mark.parametrize("sinks", [5, None, "plays", {"plays": 1}, [""], [3]])
def test_sinks_are_a_list_of_names(sinks: Any) -> None:
    with pytest.raises(AppError, match="it must be a list of names"):
        App("a").job(sinks=sinks)


def test_what_has_no_name_is_no_job() -> None:
    with pytest.raises(AppError, match="it has no name"):
        App("a").job(partial(lambda limit, events: events, 3))
