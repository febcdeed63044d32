"""Serving the console: where it listens, what it refuses, how it is opened."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekappa.console.alerts import Bounds, Watcher, webhook
from rekappa.console.app import make_app
from rekappa.console.context import Console
from rekappa.console.observed import Observed
from rekappa.console.sight import look
from rekappa.errors import ConfigError, SetupError
from rekappa.home import Home
from rekappa.operations.logins import new_token
from rekappa.store.desk import Desk
from rekappa.store.people import Person
from rekappa.tasks.start import this_person

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WEBHOOK = "REKAPPA_WEBHOOK"


@dataclass(frozen=True, slots=True)
class Serving:
    """What the command line says. `certificate` and `key` are files; `proxied` says that a proxy does TLS."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    proxied: bool = False
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def secure(self) -> bool:
        return self.certificate is not None or self.proxied

    @property
    def loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def require_safe(serving: Serving, people: Sequence[Person]) -> None:
    """Refuse to listen where strangers are without a login and without TLS."""
    if serving.loopback and not serving.proxied:
        return
    where = "behind a proxy" if serving.proxied else f"on {serving.host}"
    if not people:
        raise ConfigError(
            f"Cannot listen {where}: no login is set up", hint="Set one up: rekappa users add NAME --role operator"
        )
    if not serving.secure:
        raise ConfigError(
            f"Cannot listen on {serving.host} without TLS: passwords would be readable on the way",
            hint="Give --certificate and --key; or --behind-proxy, if a proxy does TLS; or listen on 127.0.0.1.",
        )


def made_console(home: Home, folder: Path, serving: Serving) -> Console:
    """The console; without any login, with a token for whoever starts it."""
    people = Desk.open(home).people()
    token = None if people else new_token()
    return Console(home, folder, Observed(home, folder), token, this_person(), serving.secure)


def address_of(serving: Serving, console: Console) -> str:
    """What to open in a browser."""
    name = f"[{serving.host}]" if ":" in serving.host else serving.host
    scheme = "https" if serving.certificate else "http"
    return f"{scheme}://{name}:{serving.port}/" + (f"login?token={console.token}" if console.token else "")


def serve(home: Home, folder: Path, serving: Serving, on_start: Any = None) -> None:
    """Serve until interrupted."""
    try:
        import uvicorn
    except ImportError:
        raise SetupError(
            "Cannot serve the console: its packages are not installed", hint="pip install 'rekappa[console]'"
        ) from None
    require_safe(serving, Desk.open(home).people())
    console = made_console(home, folder, serving)
    address = os.environ.get(WEBHOOK)
    watcher = Watcher(lambda now: look(console, now), webhook(address), serving.bounds) if address else None
    hosts = LOOPBACK if serving.loopback and not serving.proxied else ()
    app = make_app(console, hosts=hosts, watcher=watcher)
    if on_start:
        on_start(address_of(serving, console))
    # No access log: addresses may hold the owner's token, and the audit trail says who changed what.
    config = uvicorn.Config(
        app,
        host=serving.host,
        port=serving.port,
        ssl_certfile=serving.certificate,
        ssl_keyfile=serving.key,
        proxy_headers=serving.proxied,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    # It has ended cleanly by then, and passes the signal on.
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(1)
