"""The broker's own configuration: one node, loopback only, made for history rather than for load."""

from __future__ import annotations

from pathlib import Path

_NEVER = -1
_ANY = 2**63 - 1


def server_properties(port: int, controller_port: int, data: Path) -> str:
    """`server.properties` of a single KRaft node that is broker and controller."""
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": data,
        # One node holds every internal topic; few partitions keep start and idle cheap.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # Events may be placed at any past time: time-based retention would delete them at the next check,
        # and the timestamp bounds would refuse them.
        "log.retention.ms": _NEVER,
        "log.message.timestamp.before.max.ms": _ANY,
        "log.message.timestamp.after.max.ms": _ANY,
        # Without this the controller writes a no-op record twice a second, for ever, and re-reads them all.
        "metadata.max.idle.interval.ms": 0,
        "log.cleaner.dedupe.buffer.size": 8 * 2**20,
        "num.network.threads": 2,
        "num.io.threads": 4,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def log_properties(log: Path) -> str:
    """log4j's configuration: warnings and the broker's own start and stop, in a few files of bounded size."""
    return f"""status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSX}}{{UTC}} %-5p %c{{1}} - %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
logger.kafka.name = org.apache.kafka.common.utils.AppInfoParser
logger.kafka.level = info
"""
