"""Which values are secrets, told by the name of their setting or by what they look like, and hiding them.

    is_secret_name("fs.azure.account.key.lake.dfs.core.windows.net")     True
    hidden("postgresql://me:pw@db/shop")                                 postgresql://me:********@db/shop

The names are those that the clients of Kafka, JDBC, S3, Azure, Google and HTTP services give to their secrets. Where it
is not sure, it is hidden: a harmless value that is not shown costs less than a password that is.
"""

from __future__ import annotations

import re

MASK = "********"
_NAME = re.compile(
    r"passw(or)?d|passphrase|passcode|(^|[._-])(pass|pwd|pw|dsn|sig|sas)($|[._-])|secret|token|jaas|credential"
    r"|(private|access|api|account|shared|encryption|master)[._-]?key|key[._-]?file|keystore[._]key|[.-]key$"
    r"|user[._-]?info|authorization|cookie|signature|connection[._-]?string|key[._-]?pem|bearer",
    re.IGNORECASE,
)
NAMES = f"(?i){_NAME.pattern}"
"""The same names as an expression that Java understands."""
_ABOUT = re.compile(
    r"provider|[._-](location|source|type|class|mechanism|endpoint|endpoint[._-]ur[li]|timeout|interval|ms|enabled)$",
    re.IGNORECASE,
)
"""Ends of names that say where a secret is, of what kind or for how long, and not what it is."""
_USER_INFO = re.compile(r"(?<=://)([^\s:@/\"']*):(\S+)@")
_LOGIN = re.compile(r"(?<![\w/:@.+-])([\w.+-]+):([^\s:@/\"',]+)@(?=[\w\[])")
"""A login before a host, without a scheme."""
_ORACLE = re.compile(r"(?<=:thin:|:oci8:)([^\s/@:]*)/(\S+)@|(?<=:oci:)([^\s/@:]*)/(\S+)@", re.IGNORECASE)
_PAIR = re.compile(
    r"(?P<name>[A-Za-z_][\w.\-]*)(?P<is>\s*=\s*)(?P<value>\"[^\"]*\"?|'[^']*'?|[^\s;&\"']+)",
)
_SCHEME = re.compile(r"\b(Bearer|Basic|Digest|SharedKey)(\s+)([A-Za-z0-9._~+/=:-]{6,})")


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return _NAME.search(name) is not None and _ABOUT.search(name) is None


def hidden(text: str) -> str:
    """The text with the secrets that stand inside it masked: in addresses, connection strings and headers."""
    text = _USER_INFO.sub(lambda found: f"{found[1]}:{MASK}@", text)
    text = _LOGIN.sub(lambda found: f"{found[1]}:{MASK}@", text)
    text = _ORACLE.sub(lambda found: f"{found[1] or found[3]}/{MASK}@", text)
    text = _PAIR.sub(_hidden_pair, text)
    return _SCHEME.sub(lambda found: f"{found[1]}{found[2]}{MASK}", text)


def _hidden_pair(found: re.Match[str]) -> str:
    return f"{found['name']}{found['is']}{MASK}" if is_secret_name(found["name"]) else found[0]
