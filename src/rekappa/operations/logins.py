"""Passwords and tokens: only their hashes are kept.

Passwords go through scrypt, so that a stolen store does not give them away. Tokens are random and long: a plain digest
of one can't be guessed back.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from rekappa.store.people import Person

_COST, _BLOCK, _PARALLEL = 2**15, 8, 1
_MEMORY = 128 * _COST * _BLOCK * 2
_TOKEN = "token:"


def hashed(password: str) -> str:
    """The password's hash with its salt and cost, as it is kept."""
    salt = secrets.token_bytes(16)
    return f"scrypt:{_COST}:{_BLOCK}:{_PARALLEL}:{salt.hex()}:{_scrypt(password, salt, _COST, _BLOCK, _PARALLEL).hex()}"


def fits(password: str, secret: str) -> bool:
    """Whether the kept hash is that of the password. Takes as long for a wrong one."""
    kind, *parts = secret.split(":")
    if kind != "scrypt" or len(parts) != 5:
        hashed(password)
        return False
    cost, block, parallel = (int(part) for part in parts[:3])
    made = _scrypt(password, bytes.fromhex(parts[3]), cost, block, parallel)
    return hmac.compare_digest(made, bytes.fromhex(parts[4]))


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=_MEMORY)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_digest(token: str) -> str:
    """A token's digest as the secret of a login."""
    return _TOKEN + digest(token)


def bearer(people: list[Person], token: str) -> Person | None:
    """Whose token it is."""
    wanted = token_digest(token)
    return next((one for one in people if hmac.compare_digest(one.secret, wanted)), None)


def has_password(person: Person) -> bool:
    return not person.secret.startswith(_TOKEN)
