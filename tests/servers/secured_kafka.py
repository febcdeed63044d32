"""A Kafka broker that lets nobody in without TLS and a login, and that compacts at once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rekappa.jvm.jars import jars
from rekappa.jvm.java import java
from rekappa.stack.settings import server_properties
from servers.process import free_port, running

USER, PASSWORD = "alice", 'pa"ss\\w;rd'
KEYSTORE_PASSWORD = "changeit"
_CLUSTER = "--cluster-id=rekappa-tests-secured01"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class SecuredKafka:
    bootstrap: str
    certificate: Path

    def options(self, password: str = PASSWORD) -> dict[str, str]:
        """A cluster's `options`, in the words of Kafka's Java client."""
        escaped = password.replace("\\", "\\\\").replace('"', '\\"')
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{_MODULE} required username="{USER}" password="{escaped}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    server = SecuredKafka(f"127.0.0.1:{port}", folder / "broker.pem")
    _make_certificate(folder / "broker.p12", server.certificate)
    properties = folder / "server.properties"
    demands = {
        "listeners": f"SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"SASL_SSL://127.0.0.1:{port}",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": _jaas(),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": folder / "broker.p12",
        "ssl.keystore.password": KEYSTORE_PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": server.certificate,
        "log.cleaner.backoff.ms": 100,
    }
    lines = "".join(f"{key}={value!s}\n" for key, value in demands.items())
    properties.write_text(server_properties(port, controller, folder / "data") + lines)
    folders = sorted({str(jar.parent / "*") for jar in jars("broker")})
    kafka: list[str | Path] = [
        java(),
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        ":".join(folders),
    ]
    # The tool reads a password in quotes, with neither quotes nor backslashes in it escaped.
    login = f'SCRAM-SHA-256=[name="{USER}",password="{PASSWORD}"]'
    made = [*kafka, "kafka.tools.StorageTool", "format", _CLUSTER, "-c", properties, "--add-scram", login]
    subprocess.run(made, check=True, capture_output=True)
    with running([*kafka, "kafka.Kafka", properties], folder / "broker.log", lambda: _answers(server)):
        yield server


def _jaas() -> str:
    """For a properties file, which takes a backslash for itself."""
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    return f'{_MODULE} required username="{USER}" password="{escaped}";'.replace("\\", "\\\\")


def _make_certificate(keystore: Path, certificate: Path) -> None:
    """A key for 127.0.0.1 with a certificate that it signed itself, and that certificate for clients to trust."""
    keytool = Path(java()).resolve().with_name("keytool")
    store: list[str | Path] = ["-keystore", keystore, "-storepass", KEYSTORE_PASSWORD, "-alias", "broker"]
    named = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-keyalg", "EC", "-validity", "3650"]
    subprocess.run([keytool, "-genkeypair", "-storetype", "PKCS12", *store, *named], check=True, capture_output=True)
    subprocess.run([keytool, "-exportcert", "-rfc", *store, "-file", certificate], check=True, capture_output=True)


def _answers(server: SecuredKafka) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from rekappa.sources.kafka import for_librdkafka

    options = for_librdkafka({"bootstrap.servers": server.bootstrap, **server.options()})
    try:
        return bool(AdminClient({**options, "log_level": 0}).list_topics(timeout=2).brokers)
    except KafkaException:
        return False
