"""Who may use the console, and who did what through either face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class UserRole(StrEnum):
    """A viewer looks; an operator changes things."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Person:
    """A login. `secret` is the hash of a password or token, never one of them."""

    name: str
    role: UserRole
    secret: str = field(repr=False)
    created: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has logged in. `form_key` must come with every change that a browser asks for."""

    name: str
    role: UserRole
    form_key: str = field(repr=False)
    expires: datetime

    @property
    def may_change(self) -> bool:
        return self.role is UserRole.OPERATOR


@dataclass(frozen=True, slots=True)
class Deed:
    """One line of the audit trail: what was asked, by whom, through which face, of which app and run."""

    at: datetime
    who: str
    face: str
    what: str
    app: str | None
    run: str | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeptOverride:
    """A value that somebody set for the next runs of an app, under the key that `--set` takes."""

    app: str
    key: str
    value: str
    who: str
    at: datetime

    @property
    def text(self) -> str:
        return f"{self.key}={self.value}"
