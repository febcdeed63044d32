"""Confluent's framing of a message: a zero byte, the schema's id in four, then the payload.

    00 | 00 00 00 07 | 0a 03 …            schema 7

Protobuf's payload begins with the way to the message type among those of its file: how many steps, then each, as
zigzag numbers of seven bits a byte; a single zero is the first type of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

_HEAD = struct.Struct(">bI")
HEAD_BYTES = _HEAD.size
_MOST_STEPS = 64


class Undecodable(Exception):
    """The message holds no event of the declared schema; the text says why, as dead letters keep it."""


class Framed(NamedTuple):
    """A message taken apart."""

    schema_id: int
    body: bytes


def unframed(message: bytes) -> Framed:
    if len(message) < _HEAD.size or message[0] != 0:
        shown = message[:HEAD_BYTES].hex(" ")
        raise Undecodable(f"no schema id in front: it begins with {shown}" if message else "empty value")
    return Framed(_HEAD.unpack_from(message)[1], message[_HEAD.size :])


def framed(schema_id: int, body: bytes) -> bytes:
    return _HEAD.pack(0, schema_id) + body


def split_steps(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """The way to Protobuf's message type, and the message itself."""
    count, at = _number(body, 0)
    if count == 0:
        return (0,), body[at:]
    if not 0 < count <= _MOST_STEPS:
        raise Undecodable(f"not a Protobuf message with its type in front: {count} steps to it")
    steps = []
    for _ in range(count):
        step, at = _number(body, at)
        steps.append(step)
    return tuple(steps), body[at:]


def written_steps(steps: Sequence[int]) -> bytes:
    if tuple(steps) == (0,):
        return b"\0"
    return b"".join(_written(number) for number in (len(steps), *steps))


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag number and where the next byte is."""
    found, shift = 0, 0
    while at < len(body) and shift < 35:
        byte = body[at]
        found, at, shift = found | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise Undecodable("not a Protobuf message with its type in front: it ends before that")


def _written(number: int) -> bytes:
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])
