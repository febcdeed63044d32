"""Who may do what: every request passes here, so that no page can forget to ask.

Looking needs a login; a change needs the role of operator, a request that comes from our own pages, and the key that
only they know. A program may send a token instead (`Authorization: Bearer`): no browser does that by itself.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rekappa.masking import hidden
from rekappa.operations.logins import bearer, digest
from rekappa.store.desk import Desk
from rekappa.store.people import Session

COOKIE = "rekappa_session"
LASTS = timedelta(hours=12)
FORM_KEY = "form_key"
LARGEST_FORM = 200_000
OPEN = ("/login", "/health")
"""What can be asked for without a login."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with that a browser sends our own forms with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Denied(Exception):
    """The request is refused. With `login`, a browser is sent to the login page."""

    def __init__(self, status: int, why: str, *, login: str | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.login = status, why, login


class SecurityHeaders:
    """Adds the headers to every answer; with TLS, also that browsers shall insist on it."""

    def __init__(self, app: ASGIApp, secure: bool) -> None:
        self._app = app
        told = HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if secure else {})
        self._headers = [(name.lower().encode(), value.encode()) for name, value in told.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                given = {name for name, _ in message["headers"]}
                more = [(name, value) for name, value in self._headers if name not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:
            # What nobody foresaw is answered here, with the headers; what had begun can only be cut off.
            print(hidden("".join(traceback.format_exception(error))), file=sys.stderr)
            if started:
                raise
            answer = PlainTextResponse("Something went wrong in the console; its own output says what.", 500)
            await answer(scope, receive, sending)


@dataclass(slots=True, eq=False)
class Guard:
    """`hosts` are the names under which the console may be asked for; any, if empty."""

    desk: Desk
    hosts: Sequence[str] = ()
    secure: bool = False

    async def __call__(self, request: Request) -> None:
        """Lets the request pass, or raises `Denied`."""
        self._require_host(request)
        if "\0" in request.url.path or "\0" in unquote(request.url.query):
            raise Denied(400, "The address holds a zero byte.")
        if request.method not in ("GET", "HEAD"):
            self._require_own_page(request)
        if request.url.path in OPEN:
            return
        session, by_token = await run_in_threadpool(self.session_of, request)
        if session is None:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            raise Denied(401, "You are not logged in, or your session has expired.", login=f"/login?next={quote(here)}")
        request.state.session = session
        if request.method in ("GET", "HEAD"):
            return
        if not by_token and (await form_of(request)).get(FORM_KEY) != session.form_key:
            raise Denied(403, "The form was not made for this session. Load the page again, and send it again.")
        if not session.may_change and request.url.path != "/logout":
            raise Denied(403, "You may look, but not change anything: that takes the role of operator.")

    def session_of(self, request: Request) -> tuple[Session | None, bool]:
        """Who asks, and whether by a token."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            person = bearer(self.desk.people(), token.strip())
            soon = datetime.now(UTC) + timedelta(minutes=1)
            return (Session(person.name, person.role, "", soon), True) if person else (None, True)
        cookie = request.cookies.get(cookie_of(request))
        return (self.desk.session(digest(cookie)) if cookie else None), False

    def _require_host(self, request: Request) -> None:
        """A name that leads here but is not ours is a page that wants to be taken for this one."""
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
        if self.hosts and host not in self.hosts:
            raise Denied(400, f"The console is not known as {host!r}.")

    def _require_own_page(self, request: Request) -> None:
        site = request.headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            raise Denied(403, "The request comes from another site.")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise Denied(403, "The request comes from another site.")


def cookie_of(request: Request) -> str:
    """The name of the session's cookie. Cookies know no port: two consoles of one machine have one each."""
    port = request.url.port
    return COOKIE if port is None else f"{COOKIE}_{port}"


async def form_of(request: Request) -> Form:
    """The fields of a form. Read by ourselves: forms here are short and hold no files."""
    if int(request.headers.get("content-length") or 0) > LARGEST_FORM:
        raise Denied(413, "The form is too large.")
    body = await request.body()
    if len(body) > LARGEST_FORM:
        raise Denied(413, "The form is too large.")
    try:
        return Form(parse_qs(body.decode(), keep_blank_values=True, max_num_fields=500))
    except ValueError:
        raise Denied(400, "The form can't be read.") from None


@dataclass(frozen=True, slots=True)
class Form:
    fields: Mapping[str, list[str]] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """The one value of a field, without the blanks around it; empty if it was not sent."""
        return self.fields.get(name, [""])[-1].strip()

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value.strip() for value in self.fields.get(name, ()) if value.strip())

    def on(self, name: str) -> bool:
        return bool(self.get(name))

    def rest(self, *left_out: str) -> list[tuple[str, str]]:
        """Every field but these, as it was sent."""
        return [(name, value) for name, values in self.fields.items() if name not in left_out for value in values]


@dataclass(slots=True)
class Attempts:
    """Logins that failed: after some of one name it must wait, longer and longer. Kept in memory.

    An attempt counts as failed from its beginning on, so that many at once are no more than one after the other."""

    free: int = 5
    longest: float = 300.0
    _failed: dict[str, tuple[int, float]] = field(default_factory=dict)

    def wait(self, name: str) -> float:
        """Seconds until this name may try again."""
        count, last = self._failed.get(name, (0, 0.0))
        if count < self.free:
            return 0.0
        return max(0.0, last + min(self.longest, 2.0 ** min(count - self.free, 30)) - time.monotonic())

    def begin(self, name: str) -> None:
        """Count an attempt. Of very many names those are forgotten that were tried longest ago."""
        count, _ = self._failed.pop(name, (0, 0.0))
        self._failed[name] = (count + 1, time.monotonic())
        while len(self._failed) > 10_000:
            del self._failed[next(iter(self._failed))]

    def succeeded(self, name: str) -> None:
        self._failed.pop(name, None)


def session(request: Request) -> Session:
    """Who asks; the guard has let the request pass."""
    found: Any = request.state.session
    assert isinstance(found, Session)
    return found
