"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from rekappa.cli.output import stdout_for_data
from rekappa.errors import InputError
from rekappa.home import Home

if TYPE_CHECKING:
    from rekappa.config.model import AppConfig

Command = TypeVar("Command", bound=Callable[..., Any])


class NumberRange(click.FloatRange):
    """Click's own lets NaN through: it is neither below nor above anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is no number", param, ctx) if found != found else found


def home_of_tables(config: AppConfig) -> Home:
    """The project's folder, for a command that reads tables: where these are local it must be there already."""
    home = Home.locate()
    return home.existing() if any(one.type == "stack" for one in config.catalogs.values()) else home


def app_argument(command: Command) -> Command:
    """`APP`, passed as `app`: an app's name, its folder or its rekappa.yaml."""
    return click.argument("app")(command)


def run_argument(command: Command) -> Command:
    """`RUN`, passed as `run`: a run's id, the beginning of one, or `last` for the newest backfill."""
    return click.argument("run")(command)


def json_option(command: Command) -> Command:
    """`--json`, passed as `as_json`. With it only data goes to stdout, whatever the app's own code prints."""

    @wraps(command)
    def keeping_stdout(*words: Any, as_json: bool, **options: Any) -> Any:
        with stdout_for_data() if as_json else nullcontext():
            return command(*words, as_json=as_json, **options)

    return click.option("--json", "as_json", is_flag=True, help="Print data as JSON on stdout.")(
        cast("Command", keeping_stdout)
    )


def dry_run_option(command: Command) -> Command:
    """`--dry-run`, passed as `dry_run`."""
    return click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")(command)


def yes_option(command: Command) -> Command:
    """`--yes`, passed as `yes`: for `agreed`."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


def agreed(yes: bool, question: str) -> None:
    """Go on only if told so: by --yes, or by a person at the terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("Cannot ask for consent: there is no terminal", hint="Give --yes to go on without asking.")
    click.confirm(question, abort=True, err=True)


def set_option(command: Command) -> Command:
    """`--set a.b.c=value`, any number of them, passed as the tuple `overrides`."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one value of rekappa.yaml, for example --set profiles.live.spark.sql.shuffle.partitions=8.",
    )(command)
