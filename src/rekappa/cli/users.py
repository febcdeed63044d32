"""`rekappa users`: who may log in to the console."""

from __future__ import annotations

import sys

import click

from rekappa.cli.options import dry_run_option, json_option
from rekappa.cli.output import output
from rekappa.errors import ConfigError
from rekappa.home import Home

SHORTEST = 10


@click.group()
def users() -> None:
    """Who may log in to the console, and as what: a viewer looks, an operator changes things."""


@users.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "operator"]), required=True, help="What it may do.")
@click.option("--token", is_flag=True, help="For a program: make a token and print it, once.")
@dry_run_option
@json_option
def add(name: str, role: str, token: bool, dry_run: bool, as_json: bool) -> None:
    """Add the login NAME, or give it another role and password; its sessions end.

    The password is asked for, or read from stdin where that is no terminal: never an argument, which others could
    read. It is kept as a hash (scrypt). A token is for `Authorization: Bearer`, as Prometheus sends it.
    """
    from rekappa.operations.deeds import record_deed
    from rekappa.operations.logins import hashed, new_token, token_digest
    from rekappa.store.desk import Desk
    from rekappa.store.people import UserRole

    out, home = output(as_json), Home.locate()
    if not name.isprintable() or not name.strip() or len(name) > 100:
        raise ConfigError(f"Cannot use the name {name!r}")
    if dry_run:
        out.record({"user": name, "role": role, "would": "add"})
        return
    made = new_token() if token else None
    secret = token_digest(made) if made else hashed(_password())
    record_deed(home, "add user", name=name, role=role)
    Desk.open(home).put_person(name, UserRole(role), secret)
    out.record({"user": name, "role": role} | ({"token": made} if made else {}))


def _password() -> str:
    if sys.stdin.isatty():
        told = str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        told = sys.stdin.readline().rstrip("\n")
    if len(told) < SHORTEST:
        raise ConfigError(f"Cannot use a password of {len(told)} characters", hint=f"Take {SHORTEST} or more.")
    return told


@users.command()
@click.argument("name")
@dry_run_option
@json_option
def remove(name: str, dry_run: bool, as_json: bool) -> None:
    """Take the login NAME away; its sessions end."""
    from rekappa.operations.deeds import record_deed
    from rekappa.store.desk import Desk

    out, home = output(as_json), Home.locate().existing()
    if not dry_run:
        record_deed(home, "remove user", name=name)
        Desk.open(home).drop_person(name)
    out.record({"user": name, "would" if dry_run else "done": "remove"})


@users.command(name="list")
@json_option
def list_users(as_json: bool) -> None:
    """Show who may log in."""
    from rekappa.store.desk import Desk

    desk = Desk.found(Home.locate())
    found = desk.people() if desk else []
    output(as_json).table("Users", ["name", "role", "since"], [(one.name, one.role, one.created) for one in found])
