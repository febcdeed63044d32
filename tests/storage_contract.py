"""What every storage promises of a location; each kind is asked the same."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rekappa.storage.location import Location


def keeps_the_contract(location: Location) -> None:
    """For a location that is not there yet; leaves nothing behind."""
    file = location / "a b" / "ü%20"
    assert not location.exists()
    assert not file.exists()
    assert location.names() == []
    assert list(location.files()) == []
    with pytest.raises(FileNotFoundError):
        file.read_bytes()
    with pytest.raises(FileNotFoundError):
        file.modified()
    before = datetime.now(UTC)
    file.write("first")
    file.write(b"second")
    assert (file.name, file.read_text(), file.size(), location.size()) == ("ü%20", "second", 6, 6)
    assert abs((file.modified() - before).total_seconds()) < 3600
    assert (location.names(), (location / "a b").names()) == (["a b"], ["ü%20"])
    with file.reading() as opened:
        opened.seek(3)
        assert opened.read() == b"ond"
    shared = location / "c" / "shared"
    shared.share(file)
    with pytest.raises(FileNotFoundError):
        (location / "other").share(location / "nothing")
    file.write("third")
    assert (shared.read_text(), file.read_text()) == ("second", "third")
    assert {one.name: one.size for one in location.files()} == {"a b/ü%20": 5, "c/shared": 6}
    file.remove()
    file.remove()
    assert not file.exists()
    (location / "c").remove()
    location.remove()
    location.remove()
    assert not location.exists()
