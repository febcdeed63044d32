"""`rekappa manifest`: what keeps an app running elsewhere, written for a person to apply."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rekappa.cli.options import app_argument, dry_run_option, json_option, set_option
from rekappa.cli.output import output
from rekappa.errors import ConfigError

if TYPE_CHECKING:
    from rekappa.deploy.order import Manifest, Order

MOST_USER = 2**31 - 1
"""Kubernetes takes no higher number."""


@click.command()
@app_argument
@click.option("--for", "target", type=click.Choice(["kubernetes", "systemd"]), required=True, help="What runs it.")
@click.option("--out", type=click.Path(path_type=Path), help="File or folder to write; stdout, if left out.")
@click.option("--name", help="Name of what is made. The app's, with - for _, if left out.")
@click.option("--folder", help="The app's folder there. In an image /app; on a machine where it is now.")
@click.option("--secret", "secrets", multiple=True, metavar="VARIABLE", help="A further variable; may be repeated.")
@click.option("--user", help="Who runs it: a number in a pod (185), a name on a machine (rekappa).")
@click.option("--console", "with_console", is_flag=True, help="Its console too, for a proxy that does TLS.")
@click.option("--image", help="Kubernetes: the image with rekappa and the app in it.")
@click.option("--namespace", help="Kubernetes: where to put it (default).")
@click.option("--storage", help="Kubernetes: room for the checkpoints and state of each driver (10Gi).")
@click.option("--program", help="systemd: the whole path of `rekappa` there. This one's, if left out.")
@set_option
@dry_run_option
@json_option
def manifest(
    app: str,
    target: Literal["kubernetes", "systemd"],
    out: Path | None,
    name: str | None,
    folder: str | None,
    secrets: tuple[str, ...],
    user: str | None,
    with_console: bool,
    image: str | None,
    namespace: str | None,
    storage: str | None,
    program: str | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write what keeps APP's live run and router running on Kubernetes or under systemd; applies nothing.

    Memory, cores, master and trigger are those of APP's profiles. Secrets are named, never written: every ${NAME} of
    rekappa.yaml, REKAPPA_STORE, and what --secret adds. A name that is not set here is no obstacle. What can't be
    deployed so is refused, and what is assumed is said on stderr. docs/deploy.md says what was tried.

    \b
      rekappa manifest shop --for systemd --console --out units/
      rekappa manifest shop --for kubernetes --image registry.example.org/shop:7 --namespace streams > shop.yaml
      rekappa manifest shop --for kubernetes --image shop:7 --set profiles.live.master='local[4]'
    """
    _require_fitting(target, {"image": image, "namespace": namespace, "storage": storage}, {"program": program})
    from rekappa.config.bind import load_app
    from rekappa.deploy.order import make_order

    order = make_order(app, overrides=overrides, name=name, folder=folder, secrets=secrets, console=with_console)
    load_app(order.loaded)
    if target == "kubernetes":
        made = _kubernetes(order, image, namespace, storage, user)
    else:
        made = _systemd(order, program, user)
    paths = _written(made, out, target, dry_run) if out else []
    shown = output(as_json)
    shown.document(
        {
            "app": order.app,
            "for": target,
            "files": [{"name": name, "text": text} for name, text in made.files.items()],
            "variables": made.variables,
            "notes": made.notes,
            "written": [] if dry_run else paths,
        }
    )
    if not shown.is_json:
        _show(made, paths, dry_run)
    for note in made.notes:
        click.echo(f"note: {note}", err=True)


def _require_fitting(target: str, kubernetes: dict[str, str | None], systemd: dict[str, str | None]) -> None:
    """Refuse an option that means nothing for the target, rather than ignore it."""
    for name, value in (systemd if target == "kubernetes" else kubernetes).items():
        if value is not None:
            raise ConfigError(f"Cannot use --{name} with --for {target}", hint=f"`--{name}` is for the other one.")


def _kubernetes(
    order: Order, image: str | None, namespace: str | None, storage: str | None, user: str | None
) -> Manifest:
    from rekappa.deploy.kubernetes import kubernetes
    from rekappa.deploy.pods import Place

    if image is None:
        raise ConfigError(
            "Cannot write a manifest for Kubernetes without --image",
            hint="It holds rekappa, the app's folder and its packages; docs/deploy.md shows how to build one.",
        )
    if user is not None and not (user.isascii() and user.isdecimal() and 0 < int(user) <= MOST_USER):
        raise ConfigError(
            f"Cannot use --user {user!r}: in a pod it is a number from 1 to {MOST_USER}", hint="For example --user 1000"
        )
    place = Place(image, namespace or "default", 185 if user is None else int(user), storage or "10Gi")
    return kubernetes(order, place)


def _systemd(order: Order, program: str | None, user: str | None) -> Manifest:
    from rekappa.deploy.systemd import Machine, systemd

    there = program or str(Path(sys.executable).with_name("rekappa"))
    return systemd(order, Machine(there, "rekappa" if user is None else user))


def _written(made: Manifest, out: Path, target: str, dry_run: bool) -> list[Path]:
    """The paths of the files; several need a folder, which is made if it is not there."""
    into_folder = target == "systemd" or out.is_dir()
    files = {out / name if into_folder else out: text for name, text in made.files.items()}
    strange = next((path for path in files if path.is_file() and not _ours(path)), None)
    if strange is not None:
        raise ConfigError(f"Cannot write {strange}: rekappa did not write the file that is there", hint="Remove it.")
    if not dry_run:
        try:
            if into_folder:
                out.mkdir(parents=True, exist_ok=True)
            for path, text in files.items():
                path.write_text(text, "utf-8")
        except OSError as error:
            raise ConfigError(f"Cannot write {out}: {error.strerror}") from None
    return list(files)


def _ours(path: Path) -> bool:
    """Whether an earlier call wrote the file: every manifest calls rekappa."""
    return b"rekappa" in path.read_bytes()


def _show(made: Manifest, paths: list[Path], dry_run: bool) -> None:
    if paths:
        click.echo(f"{'Would write' if dry_run else 'Wrote'} {', '.join(str(path) for path in paths)}.")
        return
    for name, text in made.files.items():
        if len(made.files) > 1:
            click.echo(f"# {name}")
        click.echo(text, nl=len(made.files) > 1)
