"""Addresses of brokers and masters of Spark: what is none of them is refused before anything waits for it."""

from __future__ import annotations

import re

from rekappa.masking import hidden

UNSET = "-is-not-set"
"""Ends what stands for a variable that is only named, as in a manifest: what it will hold can't be checked."""
STACK = "stack"
_BROKER = re.compile(r"(?:[A-Za-z0-9_]+://)?(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]+)")
_LOCAL = re.compile(
    r"local(?:\[(?:\*|[1-9][0-9]*)(?:\s*,\s*[1-9][0-9]*)?\])?|local-cluster\[[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\]"
)
_CLUSTER = re.compile(r"k8s://(?:https?://)?(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]+))?(?:/\S*)?")
_USER = re.compile(r"https?://[^/?#\s]*@", re.IGNORECASE)
"""A name alone before the host: a token, in an address of the web. In Azure's storage it is a container."""
MASTERS = "Write it like local[*], local[4], spark://host:7077, yarn or k8s://https://host:443."
BROKERS = f"Write it like kafka-1:9092,kafka-2:9092, or {STACK} for the broker of `rekappa up`."


def wrong_brokers(text: str) -> str | None:
    """What is wrong with a list of brokers; None if nothing is."""
    if text == STACK or UNSET in text:
        return None
    for one in text.split(","):
        found = _BROKER.fullmatch(one.strip())
        if found is None and "@" in one:
            return f"names a login before {one.strip().rpartition('@')[2]!r}: that belongs into its options"
        if found is None:
            lacks = re.fullmatch(r"[A-Za-z0-9._-]+", one.strip()) is not None
            return f"names {one.strip()!r}, " + ("which lacks its port" if lacks else "which is no host:port")
        if not _is_port(found["port"]):
            return f"names {one.strip()!r}, whose port is not between 1 and 65535"
    return None


def wrong_master(text: str) -> str | None:
    """What is wrong with a master of Spark; None if nothing is."""
    if UNSET in text or text == "yarn" or _LOCAL.fullmatch(text):
        return None
    if text.startswith("spark://"):
        wrong = wrong_brokers(text.removeprefix("spark://"))
        return wrong and f"is {text!r}: it {wrong}"
    found = _CLUSTER.fullmatch(text)
    if found is None:
        return f"is {text!r}, which is no master of Spark"
    return (
        f"is {text!r}, whose port is not between 1 and 65535" if found["port"] and not _is_port(found["port"]) else None
    )


def holds_login(address: str) -> bool:
    """Whether a login, or another secret, stands inside an address."""
    return _USER.search(address) is not None or hidden(address) != address


def _is_port(digits: str) -> bool:
    return len(digits) <= 5 and 1 <= int(digits) <= 65535
