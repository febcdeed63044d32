"""Every change asks first: what will change, by which command; then the same form comes again with a yes."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from rekappa.console.context import core_of, page
from rekappa.console.guard import FORM_KEY, Form
from rekappa.operations.changes import AskedChange, begin
from rekappa.shown import plain
from rekappa.tasks.start import require_no_secret

SURE = "sure"


def confirmed(
    request: Request,
    form: Form,
    change: AskedChange,
    onward: str | None = None,
    *,
    asked: bool = False,
    back: str | None = None,
) -> Response:
    """Start the change if the form says yes, or if the page showed already what it does; else ask. `back` is where a no
    leads.

    A program that sends JSON back gets the task as `rekappa jobs TASK --json` has it.
    """
    programmatic = "application/json" in request.headers.get("accept", "")
    # Before it is asked: what would be refused is not worth a question, and no page repeats a secret.
    require_no_secret(change.words)
    if not (form.on(SURE) or asked or programmatic):
        rest = form.rest(FORM_KEY, SURE)
        return page(request, "confirm.html", change=change, fields=rest, back=back or _back(request))
    task = begin(core_of(request), change)
    if programmatic:
        return JSONResponse(plain(task), 202)
    return RedirectResponse(onward or f"/tasks/{task.id}", 303)


def _back(request: Request) -> str:
    return request.url.path.rsplit("/", 1)[0] or "/"
