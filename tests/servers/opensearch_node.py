"""A single OpenSearch node."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from rekappa.jvm.jars import resolve
from rekappa.jvm.java import java
from servers.cassandra_node import CONFS, HERE
from servers.process import free_port, running


@contextmanager
def opensearch(folder: Path) -> Iterator[str]:
    """The node's address. Its HTTP port is the base port plus one, and a base above 9298 is refused."""
    jars = resolve(HERE / "ivy.xml", CONFS)["opensearch"]
    port = free_port(9201, 9298)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/_cluster/health?wait_for_status=yellow&timeout=1s", timeout=2):
                return True
        except (OSError, urllib.error.URLError):
            return False

    folder.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", ":".join(str(jar) for jar in jars)]
    command += ["org.codelibs.opensearch.runner.OpenSearchRunner", "-basePath", folder, "-numOfNode", "1"]
    # A name of its own: nodes of one name on a machine find each other, and share their indexes.
    command += ["-baseHttpPort", str(port - 1), "-clusterName", f"test-{uuid4().hex}"]
    with running(command, folder / "opensearch.log", answers):
        yield url
