"""S3 on a folder of this machine (s3proxy), with keys that it demands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rekappa.jvm.jars import resolve
from rekappa.jvm.java import java
from servers.process import free_port, listens, running

IVY = Path(__file__).with_name("cluster.xml")
CONFS = ("s3proxy", "catalog")


@dataclass(frozen=True, slots=True)
class S3Server:
    port: int
    bucket: str = "lake"
    key: str = "AKIATESTS"
    secret: str = "s3-hidden-from-all"
    region: str = "us-east-1"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, folder: str) -> str:
        """A storage root in the bucket, as REKAPPA_STORAGE takes it."""
        return f"s3a://{self.bucket}/{folder}?endpoint={self.endpoint}&region={self.region}"

    @property
    def environ(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": self.region}


@contextmanager
def s3(folder: Path) -> Iterator[S3Server]:
    server = S3Server(free_port())
    (folder / "objects" / server.bucket).mkdir(parents=True)
    settings = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.endpoint": server.endpoint,
        "s3proxy.identity": server.key,
        "s3proxy.credential": server.secret,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(folder / "objects"),
    }
    file = folder / "s3proxy.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    jars = resolve(IVY, CONFS)["s3proxy"]
    command: list[str | Path] = [java(), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [f"{jars[0].parent}/*", "org.gaul.s3proxy.Main", "--properties", file]
    with running(command, folder / "s3proxy.log", lambda: listens(server.port), seconds=300):
        yield server
