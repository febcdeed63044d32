"""Starting, listing and stopping tasks. Both faces call these."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.masking import hidden
from rekappa.stack.process import Process, detach
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.task import Task, TaskState, new_task_id
from rekappa.tasks.files import answer_file, log_file

KEPT_FOR = timedelta(days=30)


def this_person() -> str:
    """Who types commands here."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


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
    # What stands behind an option's name, `--set=password=…`, is looked at by itself.
    parts = [word.partition("=")[2] if word.startswith("--") else word for word in words]
    shown = next((part for part in parts if hidden(part) != part), None)
    if shown is not None:
        raise RunError(
            f"Cannot start a process with {hidden(shown)!r}: everybody on this machine could read its secret",
            hint="Name it in rekappa.yaml as ${VARIABLE}, and set that variable where the process is started.",
        )
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
    added = desk.add_task(task, unless=lambda other: other.app == app and _as_it_is(other).state.going)
    if added.id != task.id:
        raise RunError(f"Cannot start `{added.command}`: {added.who} has started it, it is {added.state}")
    _forget_old(home, desk)
    if what:
        desk.tell(who, face, what, app, run, task=task.id, command=task.command)
    home.made().logs.mkdir(exist_ok=True)
    environ = {**os.environ, "REKAPPA_HOME": str(home.root)}
    process = detach([sys.executable, "-m", "rekappa.tasks.keeper", task.id], log_file(home, task.id), environ)
    return desk.change_task(task.id, pid=process.pid, process=process.birth)


def _forget_old(home: Home, desk: Desk) -> None:
    """What ended long ago is forgotten, with its files; who asked for it stays in the audit trail."""
    for old in desk.drop_tasks(KEPT_FOR, this_host().name):
        log_file(home, old).unlink(missing_ok=True)
        answer_file(home, old).unlink(missing_ok=True)


def tasks(home: Home, *, app: str | None = None, run: str | None = None, limit: int = 200) -> list[Task]:
    """Newest first, as they are: one whose keeper is gone is lost."""
    return [_as_it_is(one) for one in Desk.open(home).tasks(app=app, run=run, limit=limit)]


def task(home: Home, task_id: str) -> Task:
    return _as_it_is(Desk.open(home).task(task_id))


def _as_it_is(one: Task) -> Task:
    here = this_host()
    same_host = one.host == here.name
    # Another boot of this machine, or a keeper that is no more. Of other machines nothing is known from here.
    gone = same_host and (one.machine != here.machine or not _keeper(one).alive())
    return replace(one, state=TaskState.LOST) if one.state.going and one.pid is not None and gone else one


def _keeper(one: Task) -> Process:
    return Process(one.pid or 0, one.process or "")


def stop_task(home: Home, task_id: str) -> Task:
    """Ask a task to end: its command ends cleanly, a pause is cut short. Does not wait for it."""
    found = task(home, task_id)
    if not found.state.going:
        raise RunError(f"Cannot stop task {found.id}: it is {found.state}", hint="`rekappa jobs` lists them.")
    if found.machine != this_host().machine:
        raise RunError(f"Cannot stop task {found.id} from {this_host().name}: it is on {found.host}")
    os.kill(_keeper(found).pid, signal.SIGTERM)
    return found


def lost(home: Home) -> list[Task]:
    """The kept tasks of this machine whose keeper is gone, the newest of each command that is not going."""
    known = tasks(home)
    seen = {one.words for one in known if one.state.going}
    found = []
    for one in known:
        if one.kept and one.state is TaskState.LOST and one.host == this_host().name and one.words not in seen:
            seen.add(one.words)
            found.append(one)
    return found


def revive(home: Home, who: str, face: str) -> list[Task]:
    """Start anew what is lost: what ran when the machine went down."""
    started = []
    for one in lost(home):
        # Written down as over first: it is started anew once, whoever asks at the same time.
        Desk.open(home).change_task(one.id, state=TaskState.STOPPED, now=("ended",))
        folder = Path(one.folder)
        started.append(
            start_task(home, one.words, who=who, face=face, what="revive", app=one.app, kept=True, folder=folder)
        )
    return started
