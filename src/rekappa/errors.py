"""Every error that rekappa raises on purpose.

    RekappaError
    ├── ConfigError       rekappa.yaml, environment or --set is wrong
    ├── AppError          the app's code does not fit its configuration
    ├── SetupError        Java, jars or an optional package is missing
    ├── InputError        a file of events, or a question, that can't be used
    ├── StackError        the local broker or catalog
    ├── SourceError       a source can't be read
    ├── SinkError         a sink can't be written, staged or published
    ├── ArchiveError      the archive is missing, incomplete or damaged
    ├── PlanError         a window that can't be planned
    ├── RunError          a run that can't be started, found or continued
    │   ├── LeaseLost     another process has taken over what this one was writing
    │   ├── StoreError    the run store can't be reached
    │   └── WorkFailed    work that was under way failed; what is done is kept
    ├── ValidationError   staging and production can't be compared
    └── PublishError      publishing or undoing was refused
        └── HistoryGone   too many of a table's snapshots are gone to tell who changed what

A message says what was wrong, with the value; `hint` names the next thing to do.
"""

from __future__ import annotations


class RekappaError(Exception):
    """The root: catch this one to catch them all."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(RekappaError):
    """rekappa.yaml, the environment or an override is wrong."""


class AppError(RekappaError):
    """The app's code does not fit its configuration."""


class SetupError(RekappaError):
    """Java, a jar or an optional package is missing."""


class InputError(RekappaError):
    """A file of events that can't be sent, or a question that can't be asked."""


class StackError(RekappaError):
    """The local broker or catalog can't be started, found or stopped."""


class SourceError(RekappaError):
    """A source can't be read."""


class SinkError(RekappaError):
    """A sink can't be written, staged or published."""


class ArchiveError(RekappaError):
    """The archive is missing, incomplete or damaged."""


class PlanError(RekappaError):
    """A window, mode or region that can't be planned."""


class RunError(RekappaError):
    """A run that can't be started, found or continued."""


class LeaseLost(RunError):
    """Another process has taken over what this one was writing: it must write nothing more."""


class StoreError(RunError):
    """The run store can't be reached, or did not answer in time."""


class WorkFailed(RunError):
    """Work that was under way failed: the job's code, a server, Spark itself. What is done is kept."""


class ValidationError(RekappaError):
    """Staging and production can't be compared."""


class PublishError(RekappaError):
    """Publishing or undoing was refused."""


class HistoryGone(PublishError):
    """Too many of a table's snapshots are gone to tell who changed what."""
