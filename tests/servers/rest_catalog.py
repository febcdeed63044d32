"""An Iceberg REST catalog: the server of Iceberg's own tests, on loopback, its tables in an object store.

Its main class listens on every interface, so it is put together here, in a JVM of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rekappa.jvm.jars import jars, resolve
from rekappa.jvm.java import java
from servers.process import free_port
from servers.s3 import CONFS, IVY


def pyspark_jars() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "jars"


@contextmanager
def rest_catalog(folder: Path, warehouse: str, hadoop: Mapping[str, str]) -> Iterator[str]:
    """The catalog's address. `hadoop` says how to reach the warehouse."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    own = pyspark_jars()
    # Those of S3 first: the tests of Iceberg carry a class of the same name as one of theirs.
    path = [*jars("s3a"), *own.glob("hadoop-client-*.jar"), *resolve(IVY, CONFS)["catalog"]]
    os.environ.setdefault("JAVA_HOME", str(Path(java()).resolve().parents[1]))
    with (folder / "catalog.log").open("w") as log:
        port = launch_gateway(
            jarpath=str(next(own.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(str(jar) for jar in path),
            javaopts=["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            java_path=str(java()),
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            jvm = gateway.jvm
            conf = jvm.org.apache.hadoop.conf.Configuration()
            for name, value in hadoop.items():
                conf.set(name, value)
            catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
            catalog.setConf(conf)
            settings = {
                "uri": f"jdbc:sqlite:{folder}/catalog.db",
                "jdbc.schema-version": "V1",
                "warehouse": warehouse,
                "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            }
            told = jvm.java.util.HashMap()
            for name, value in settings.items():
                told.put(name, value)
            catalog.initialize("rest", told)
            listening = free_port()
            server = jvm.org.eclipse.jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", listening))
            handler = jvm.org.eclipse.jetty.servlet.ServletContextHandler(0)
            servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(
                jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
            )
            handler.addServlet(jvm.org.eclipse.jetty.servlet.ServletHolder(servlet), "/*")
            server.setHandler(handler)
            server.start()
            yield f"http://127.0.0.1:{listening}"
        finally:
            gateway.shutdown()
