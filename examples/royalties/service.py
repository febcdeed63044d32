"""A stand-in for somebody's service: it thinks otherwise of an account at every call, as services do.

python examples/royalties/service.py
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

_calls = count()


class Risk(BaseHTTPRequestHandler):
    """Answers a JSON list of accounts with a JSON list of what it thinks of each."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps([{"suspicious": next(_calls) % 7 == 0} for _ in asked]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None: ...


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8765), Risk).serve_forever()
