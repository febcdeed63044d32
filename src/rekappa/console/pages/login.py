"""Logging in and out. With no login set up, the address that the console printed lets its owner in."""

from __future__ import annotations

import hmac
import secrets

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from rekappa.console.context import Console, console_of, page
from rekappa.console.guard import LASTS, Denied, cookie_of, form_of
from rekappa.operations.logins import digest, has_password, hashed, new_token
from rekappa.store.desk import Desk
from rekappa.store.people import UserRole

router = APIRouter()
_NOBODY = hashed(secrets.token_hex(16))
"""The hash that a name that nobody has is compared with, so that it takes as long."""


@router.get("/login")
def login_page(request: Request, token: str = "", next: str = "/") -> Response:
    console = console_of(request)
    if token:
        if console.token is None or not hmac.compare_digest(token, console.token):
            raise Denied(403, "This address is not valid any more: the console prints a new one when it is started.")
        return _entered(request, console, console.owner, UserRole.OPERATOR, next)
    return page(request, "login.html", next=_inside(next), open=console.token is not None, wrong=False)


@router.post("/login")
async def log_in(request: Request) -> Response:
    console, form = console_of(request), await form_of(request)
    name, onward = form.get("name"), form.get("next")
    wait = console.attempts.wait(name)
    if wait:
        raise Denied(429, f"Too many attempts. Wait {max(1, round(wait))} seconds, and try again.")
    with console.hashing.room():
        console.attempts.begin(name)
        people = await run_in_threadpool(Desk.open(console.home).people)
        person = next((one for one in people if one.name == name and has_password(one)), None)
        right = await console.hashing.fits(form.get("password"), person.secret if person else _NOBODY)
    if not right or person is None:
        return page(request, "login.html", 401, next=_inside(onward), open=console.token is not None, wrong=True)
    console.attempts.succeeded(name)
    return await run_in_threadpool(_entered, request, console, person.name, person.role, onward)


def _entered(request: Request, console: Console, name: str, role: UserRole, onward: str) -> Response:
    desk, token = Desk.open(console.home), new_token()
    desk.begin_session(digest(token), name, role, new_token(), LASTS)
    desk.tell(name, "console", "log in")
    answer = RedirectResponse(_inside(onward), 303)
    answer.set_cookie(
        cookie_of(request),
        token,
        max_age=int(LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=console.secure,
    )
    return answer


def _inside(address: str) -> str:
    """A page of ours, wherever somebody wants a login to lead."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"


@router.post("/logout")
def log_out(request: Request) -> Response:
    if cookie := request.cookies.get(cookie_of(request)):
        Desk.open(console_of(request).home).end_session(digest(cookie))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(cookie_of(request))
    return answer


@router.get("/health")
async def health() -> dict[str, str]:
    return {"state": "up"}
