"""An app's drivers as systemd services of one machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rekappa.deploy.console import ROLE, WORDS, console_lines
from rekappa.deploy.drivers import Driver
from rekappa.deploy.obstacles import notes, require_deployable
from rekappa.deploy.order import Manifest, Order
from rekappa.errors import ConfigError
from rekappa.storage.root import VARIABLE as STORAGE
from rekappa.store.address import VARIABLE

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}\Z")
HARDENING = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome={home}
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
UMask=0077
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where on a machine: the program, the user that it runs as."""

    program: str
    user: str


def systemd(order: Order, machine: Machine) -> Manifest:
    """One unit for each driver; refuses with `ConfigError` what can't be run so."""
    if not _USER.match(machine.user):
        raise ConfigError(f"Cannot use --user {machine.user!r}: it is no name of a user")
    if not PurePosixPath(machine.program).is_absolute():
        raise ConfigError(f"Cannot use --program {machine.program!r}: systemd takes only a whole path")
    folder = order.folder or str(order.loaded.folder)
    require_deployable(order, "systemd")
    if folder.startswith(("/tmp/", "/var/tmp/")):
        raise ConfigError(
            f"Cannot run an app from {folder}: the service has a /tmp of its own",
            hint="Name where it will be: --folder /srv/APP",
        )
    units = {f"rekappa-{order.name}-{driver.role}.service": unit(order, driver, machine) for driver in order.drivers}
    if order.console:
        units[f"rekappa-{order.name}-{ROLE}.service"] = console_unit(order, machine)
    return Manifest(units, notes(order, "systemd"), order.variables)


def unit(order: Order, driver: Driver, machine: Machine) -> str:
    """The text of a driver's unit file."""
    folder = order.folder or str(order.loaded.folder)
    memory = [f"MemoryMax={driver.mebibytes}M"] if driver.setting("spark.driver.memory") else []
    own = [
        f"ExecStart={_command(machine, order.words(driver, folder))}",
        f"Environment=REKAPPA_HOME=/var/lib/rekappa/{order.name} XDG_CACHE_HOME=/var/cache/rekappa",
        f"WorkingDirectory=/var/lib/rekappa/{order.name}",
        *memory,
    ]
    ends = [
        "# Only the process itself is asked to stop: it ends its batch, and then Spark. A kill later on loses nothing.",
        "KillSignal=SIGTERM",
        "KillMode=mixed",
        f"TimeoutStopSec={int(driver.grace.total_seconds())}",
    ]
    return _unit(order, machine, driver.role, own, ends)


def console_unit(order: Order, machine: Machine) -> str:
    """The text of the console's unit file."""
    folder = order.folder or str(order.loaded.folder)
    own, ends = console_lines(order, folder.replace("%", "%%"), _command(machine, WORDS))
    return _unit(order, machine, ROLE, own, ends)


def _command(machine: Machine, words: Sequence[str]) -> str:
    return " ".join(_quoted(word) for word in (machine.program, *words))


def _unit(order: Order, machine: Machine, role: str, own: list[str], ends: list[str]) -> str:
    folder = order.folder or str(order.loaded.folder)
    # What ProtectHome hides: the homes of people and of the superuser.
    below_home = any(PurePosixPath(path).parts[1:2] in (("home",), ("root",)) for path in (folder, machine.program))
    required = any(not one.optional for one in order.variables)
    file = f"/etc/rekappa/{order.name}.env"
    hardening = HARDENING.format(home="read-only" if below_home else "yes")
    if role == ROLE:
        # systemd removes a private /tmp with the service that has it, also under what goes on after it.
        hardening = hardening.replace("PrivateTmp=yes", "ReadWritePaths=/tmp /var/tmp")
    lines = [
        "[Unit]",
        f"Description=rekappa: {order.app}, {role}",
        "Wants=network-online.target",
        "After=network-online.target",
        "# What fails again and again for about an hour needs a person: systemctl reset-failed, then start.",
        "StartLimitIntervalSec=2h",
        "StartLimitBurst=20",
        "",
        "[Service]",
        "Type=exec",
        f"User={machine.user}",
        *own,
        *_of_variables(order, file),
        f"EnvironmentFile={'' if required else '-'}{file}",
        f"StateDirectory=rekappa/{order.name}",
        "StateDirectoryMode=0700",
        "CacheDirectory=rekappa",
        "",
        "# The pauses grow from ten seconds to five minutes; before systemd 254 they stay at ten seconds.",
        "Restart=on-failure",
        "RestartSec=10",
        "RestartSteps=8",
        "RestartMaxDelaySec=5min",
        "",
        *ends,
        "",
        "# No MemoryDenyWriteExecute: Java compiles while it runs.",
        *hardening.splitlines(),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _of_variables(order: Order, file: str) -> list[str]:
    wanted = [one.name for one in order.variables if not one.optional]
    optional = [VARIABLE, STORAGE, *(one.name for one in order.variables if one.optional)]
    return [
        f"# Secrets stand in {file}, NAME=VALUE on each line, owner root, mode 0600: systemd reads it as root.",
        *([f"# It must have {', '.join(wanted)}."] if wanted else []),
        f"# It may have {', '.join(optional)}.",
    ]


def _quoted(word: str) -> str:
    """A word of ExecStart, as systemd reads it back: no specifiers, no variables, no escapes of its own."""
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in word):
        raise ConfigError(f"Cannot write {word!r} into a unit: it has a control character")
    doubled = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$\[\]*-]+", doubled, re.ASCII):
        return doubled
    escaped = doubled.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
