"""Prints docs/cli.md from the commands themselves: `python -m rekappa.cli.reference > docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rekappa.cli.main import COMMANDS, main


def reference() -> str:
    """The whole page, ending in a line feed."""
    context = main.make_context("rekappa", [], resilient_parsing=True)
    lines = [
        "# Commands",
        "",
        "Written by `python -m rekappa.cli.reference`; a test compares the two.",
        "Every command takes `--json` (data on stdout, progress on stderr), those that change something `--dry-run`.",
        "Exit status: 0 done, 1 work failed, 2 refused, 130 interrupted.",
    ]
    section = ""
    for name in main.list_commands(context):
        if COMMANDS[name].section != section:
            section = COMMANDS[name].section
            lines += ["", f"## {section}"]
        command = main.get_command(context, name)
        assert command is not None
        lines += _described(command, context, name, "###")
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[str, ...]]:
    """The words of every command, those inside groups too."""
    context = main.make_context("rekappa", [], resilient_parsing=True)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.list_commands(context))


def _described(command: click.Command, parent: click.Context, name: str, heading: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    yield from ("", f"{heading} {context.command_path}", "", "```", command.get_help(context), "```")
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _described(found, context, inner, heading + "#")


if __name__ == "__main__":
    click.echo(reference(), nl=False)
