"""How tasks are doing: what the store says of them, set right by which processes are alive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rekappa.home import Home
from rekappa.stack.process import Process
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.task import Task, TaskState


def tasks(home: Home, *, app: str | None = None, run: str | None = None, limit: int = 200) -> list[Task]:
    """Newest first, as they are: one whose keeper is gone is lost."""
    return [as_it_is(one) for one in Desk.open(home).tasks(app=app, run=run, limit=limit)]


def task(home: Home, task_id: str) -> Task:
    return as_it_is(Desk.open(home).task(task_id))


def as_it_is(one: Task) -> Task:
    here = this_host()
    same_host = one.host == here.name
    # Another boot of this machine, or a keeper that is no more. Of other machines nothing is known from here.
    gone = same_host and (one.machine != here.machine or not keeper(one).alive())
    return replace(one, state=TaskState.LOST) if one.state.going and one.pid is not None and gone else one


def keeper(one: Task) -> Process:
    return Process(one.pid or 0, one.process or "")


def orphan(one: Task) -> Process | None:
    """The command of a lost task that still runs, nobody looking after it; None if there is none on this machine."""
    if one.state is not TaskState.LOST or one.machine != this_host().machine or one.command_pid is None:
        return None
    found = Process(one.command_pid, one.command_process or "")
    return found if found.alive() else None


def newest_of_each(found: Iterable[Task]) -> tuple[Task, ...]:
    """Of every command the newest task, of tasks that come newest first: the same started again takes its place."""
    kept: dict[tuple[str | None, tuple[str, ...]], Task] = {}
    for one in found:
        kept.setdefault((one.app, one.words), one)
    return tuple(kept.values())


def to_be_seen(found: Iterable[Task]) -> list[Task]:
    """What `rekappa jobs` lists: tasks that are going, and kept ones that are lost, unless the same was started again
    and nothing of them runs any more."""
    known = list(found)
    newest = {one.id for one in newest_of_each(known)}
    return [one for one in known if one.state.going or (_lost(one) and (one.id in newest or orphan(one)))]


def lost(home: Home) -> list[Task]:
    """The kept tasks of this machine whose keeper is gone, the newest of each command that is not going."""
    known = tasks(home)
    seen = {one.words for one in known if one.state.going}
    found = []
    for one in known:
        if _lost(one) and one.host == this_host().name and one.words not in seen:
            seen.add(one.words)
            found.append(one)
    return found


def _lost(one: Task) -> bool:
    return one.kept and one.state is TaskState.LOST
