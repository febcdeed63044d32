"""`rekappa new`: a small app that passes its own test."""

from __future__ import annotations

import re
import tempfile
from importlib.resources import files
from pathlib import Path

import click

from rekappa.cli.options import dry_run_option, json_option
from rekappa.cli.output import output
from rekappa.errors import AppError

FILES = ("app.py", "rekappa.yaml", "test_app.py", "README.md")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")


def skeleton(name: str) -> dict[str, str]:
    """The text of each file of a new app."""
    table = name.replace("-", "_")
    texts = {file: files("rekappa").joinpath("skeleton", f"{file}.txt").read_text("utf-8") for file in FILES}
    return {
        file: text.replace("@NAME@", name).replace("@TOPIC@", name).replace("@TABLE@", table)
        for file, text in texts.items()
    }


def create(name: str, parent: Path, dry_run: bool = False) -> Path:
    """Make the folder, all of it or nothing; refuses with `AppError` a bad name or a folder that exists."""
    if not _NAME.match(name):
        raise AppError(
            f"Cannot make app {name!r}: not a name for an app",
            hint="Use lower-case letters, digits, - and _, beginning with a letter.",
        )
    folder = parent / name
    if folder.exists() or folder.is_symlink():
        raise AppError(f"Cannot make app {name!r}: {folder} exists already", hint="Choose another name.")
    if not parent.is_dir():
        raise AppError(f"Cannot make app {name!r}: there is no folder {parent}")
    if dry_run:
        return folder
    try:
        # Written beside its place and then renamed: a reader never sees half an app.
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{name}-") as draft:
            made = Path(draft) / name
            made.mkdir()
            for file, text in skeleton(name).items():
                (made / file).write_text(text, "utf-8")
            made.rename(folder)
    except OSError as error:
        raise AppError(f"Cannot make app {name!r} in {parent}: {error.strerror}") from error
    return folder


@click.command()
@click.argument("name")
@click.option("--in", "parent", type=click.Path(path_type=Path), default=Path(), help="Folder to make it in.")
@dry_run_option
@json_option
def new(name: str, parent: Path, dry_run: bool, as_json: bool) -> None:
    """Make the folder NAME with a small app, its configuration, test and README."""
    folder = create(name, parent, dry_run)
    out = output(as_json)
    out.document({"app": name, "folder": folder, "files": list(FILES), "dry_run": dry_run})
    if out.is_json:
        return
    out.message(f"{'Would make' if dry_run else 'Made'} {folder} with {', '.join(FILES)}.")
    if not dry_run:
        out.message(f"Next: pytest {folder}   rekappa config {folder} --explain")
