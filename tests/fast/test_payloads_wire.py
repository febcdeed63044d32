"""The frame around a message: ids, and the way to a Protobuf message's type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.sources.payloads.wire import Undecodable, framed, split_steps, unframed, written_steps


@given(st.integers(0, 2**32 - 1), st.binary())
def test_what_was_framed_is_found_again(schema_id: int, body: bytes) -> None:
    message = framed(schema_id, body)
    assert message[0] == 0
    assert int.from_bytes(message[1:5], "big") == schema_id
    assert unframed(message) == (schema_id, body)


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=10), st.binary())
def test_steps_are_found_again(steps: list[int], rest: bytes) -> None:
    assert split_steps(written_steps(steps) + rest) == (tuple(steps), rest)


def test_the_bytes_that_confluents_clients_write() -> None:
    assert framed(7, b"x") == b"\0\0\0\0\7x"
    assert written_steps([0]) == b"\0"
    assert written_steps([1]) == b"\2\2"
    assert written_steps([2, 0, 100]) == b"\6\4\0\xc8\1"


@given(st.binary())
def test_any_bytes_are_taken_apart_or_refused(message: bytes) -> None:
    try:
        _, body = unframed(message)
        steps, rest = split_steps(body)
    except Undecodable:
        return
    assert steps
    assert body.endswith(rest)


@pytest.mark.parametrize("message", [b"", b"\0\0\0\0", b"\1\0\0\0\7x", b'{"id": 1}'])
def test_a_message_without_frame_says_so(message: bytes) -> None:
    with pytest.raises(Undecodable, match="empty value" if not message else "no schema id in front"):
        unframed(message)
