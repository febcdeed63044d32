"""The `rekappa` command with leases that last three seconds: python short_lease.py run APP ..."""

from __future__ import annotations

from datetime import timedelta

from rekappa.cli.main import main
from rekappa.store import claim

if __name__ == "__main__":
    claim.LASTS = timedelta(seconds=3)
    main()
