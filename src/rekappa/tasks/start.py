"""Starting tasks. Both faces call these."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.masking import hidden
from rekappa.stack.process import detach
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.task import Task, new_task_id
from rekappa.tasks.ending import stop_task
from rekappa.tasks.files import answer_file, log_file
from rekappa.tasks.standing import as_it_is, lost, orphan

KEPT_FOR = timedelta(days=30)


def this_person() -> str:
    """Who types commands here."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def require_no_secret(words: Sequence[str]) -> None:
    """Refuse a command that everybody on the machine could read a secret from."""
    # What stands behind an option's name, `--set=password=…`, is looked at by itself.
    parts = [word.partition("=")[2] if word.startswith("--") else word for word in words]
    shown = next((part for part in parts if hidden(part) != part), None)
    if shown is not None:
        raise RunError(
            f"Cannot start a process with {hidden(shown)!r}: everybody on this machine could read its secret",
            hint="Name it in rekappa.yaml as ${VARIABLE}, and set that variable where the process is started.",
        )


def start_task(
    home: Home,
    words: Sequence[str],
    *,
    who: str,
    face: str,
    what: str,
    app: str | None = None,
    run: str | None = None,
    kept: bool = False,
    folder: Path | None = None,
) -> Task:
    """Start `rekappa WORDS` in a process of its own, and write down who asked for `what`, unless that is empty.

    Refuses while the same command is under way, and a secret among the words: everybody on the machine can read them.
    """
    require_no_secret(words)
    desk = Desk.open(home)
    host = this_host()
    task = Task(
        id=new_task_id(),
        words=tuple(words),
        who=who,
        face=face,
        folder=str(folder or Path.cwd()),
        host=host.name,
        machine=host.machine,
        app=app,
        run=run,
        kept=kept,
    )
    added = desk.add_task(task, unless=lambda other: other.app == app and _runs(as_it_is(other)))
    if added.id != task.id:
        found = as_it_is(added)
        hint = (
            f"Nobody looks after it any more. End it first: rekappa jobs {found.id} --stop" if orphan(found) else None
        )
        raise RunError(f"Cannot start `{found.command}`: {found.who} has started it, it is {found.state}", hint=hint)
    _forget_old(home, desk)
    if what:
        desk.tell(who, face, what, app, run, task=task.id, command=task.command)
    home.made().logs.mkdir(exist_ok=True)
    environ = {**os.environ, "REKAPPA_HOME": str(home.root)}
    process = detach([sys.executable, "-m", "rekappa.tasks.keeper", task.id], log_file(home, task.id), environ)
    return desk.change_task(task.id, pid=process.pid, process=process.birth)


def _runs(one: Task) -> bool:
    return one.state.going or orphan(one) is not None


def _forget_old(home: Home, desk: Desk) -> None:
    """What ended long ago is forgotten, with its files; who asked for it stays in the audit trail."""
    for old in desk.drop_tasks(KEPT_FOR, this_host().name):
        log_file(home, old).unlink(missing_ok=True)
        answer_file(home, old).unlink(missing_ok=True)


def revive(home: Home, who: str, face: str) -> list[Task]:
    """Start anew what is lost: what ran when the machine went down. A command that still runs is ended first."""
    started = []
    for one in lost(home):
        # Written down as over first: it is started anew once, whoever asks at the same time.
        stop_task(home, one.id)
        folder = Path(one.folder)
        started.append(
            start_task(home, one.words, who=who, face=face, what="revive", app=one.app, kept=True, folder=folder)
        )
    return started
