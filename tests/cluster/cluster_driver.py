"""A driver's machine: takes `rekappa` commands as lines of JSON and runs them one after the other on one Spark.

A command line of its own for each would start Spark each time; what they do is the same.
"""

from __future__ import annotations

import json
import sys

from click.testing import CliRunner

from rekappa.cli.main import main
from rekappa.tokens import passed


def serve() -> None:
    for line in sys.stdin:
        result = CliRunner().invoke(main, json.loads(line))
        broken = result.exception if not isinstance(result.exception, SystemExit) else None
        answer = {
            "code": result.exit_code,
            "out": result.stdout,
            "said": f"{result.stderr}{broken or ''}",
            "passed": {sink: passed(f"sink {sink}") for sink in ("totals", "served")},
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
