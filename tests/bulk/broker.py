"""What the tests of streams and tables run against: a Kafka broker, and jars from the Java registry.

Ivy, which PySpark brings, resolves the jars, once a machine. A test is skipped, with the reason, where it cannot.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType

import pyspark
import pytest

from engine.spark.session.java import java_home
from tests.waiting import until

KAFKA = ("org.apache.kafka:kafka_2.13:4.1.1", "org.apache.kafka:kafka-tools:4.1.1")
H2 = "com.h2database:h2:2.4.240"
AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
BUNDLED = "com.google.code.findbugs:jsr305,org.scala-lang.modules:scala-parallel-collections_2.13"
"""What the connector asks for and Spark has already."""
_IVY = """<ivy-module version="2.0"><info organisation="zedlog" module="tests"/><dependencies>{}</dependencies>
</ivy-module>"""
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="*->default,runtime"/>'


@cache
def class_path(*packages: str) -> str:
    """The jars of packages and of what they need, as Java takes them."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory() as folder:
        needed = "".join(_DEPENDENCY.format(*package.split(":")) for package in packages)
        (Path(folder) / "ivy.xml").write_text(_IVY.format(needed))
        java = str(java_home() / "bin" / "java")
        command = [java, "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", "ivy.xml", "-cachepath", "path.txt"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
        except subprocess.TimeoutExpired:
            pytest.skip(f"the Java registry did not answer in time for {', '.join(packages)}")
        if done.returncode:
            line = next((x for x in done.stdout.splitlines() if "not found" in x), "no message")
            pytest.skip(f"{', '.join(packages)} cannot be resolved: {line[:200]}")
        return (Path(folder) / "path.txt").read_text().strip()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Broker:
    """One broker that is its own controller, in a process of its own that ends with the context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jars = class_path(*KAFKA)
        self._java = java_home() / "bin" / "java"
        self.port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(folder / "log"),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "auto.create.topics.enable": "false",
        }
        self._file = folder / "server.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        cluster = uuid.uuid4().hex[:22]
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._file))
        with (self._folder / "broker.txt").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command("-Xmx256m"), "kafka.Kafka", str(self._file)], stdout=log, stderr=log
            )
        until(self._answers, lambda: f"the broker: {(self._folder / 'broker.txt').read_text()[-2000:]}", 120)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def topic(self, name: str, partitions: int = 1) -> str:
        """Make a topic."""
        arguments = ("--create", "--topic", name, "--partitions", str(partitions))
        self._run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *arguments)
        return f"kafka://{self.address}/{name}"

    def send(self, name: str, *messages: str, headers: Mapping[str, str] | None = None) -> None:
        """Send messages, each a line."""
        text = "".join(f"{message}\n" for message in messages)
        properties = []
        if headers is not None:
            shown = ",".join(f"{key}:{value}" for key, value in headers.items())
            text = "".join(f"{shown}\t{message}\n" for message in messages)
            properties = ["--property", "parse.headers=true"]
        self._run(
            "org.apache.kafka.tools.ConsoleProducer",
            "--bootstrap-server",
            self.address,
            "--topic",
            name,
            *properties,
            text=text,
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "broker.txt").read_text()[-2000:]
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False

    def _command(self, *options: str) -> list[str]:
        return [str(self._java), *options, "-cp", self._jars]

    def _run(self, tool: str, *arguments: str, text: str = "") -> None:
        done = subprocess.run(
            [*self._command("-Xmx128m"), tool, *arguments],
            input=text.encode(),
            capture_output=True,
            env={**os.environ, "KAFKA_HEAP_OPTS": ""},
            timeout=300,
        )
        assert not done.returncode, done.stdout.decode()[-1500:] + done.stderr.decode()[-1500:]


class Database:
    """A server of H2 with one database, in a process of its own that ends with the context."""

    password = "s3cret"

    def __init__(self) -> None:
        self._jars = class_path(H2)
        self._java = str(java_home() / "bin" / "java")
        self._port = free_port()
        self.url = f"jdbc:h2:tcp://127.0.0.1:{self._port}/mem:shop"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Database:
        arguments = ("org.h2.tools.Server", "-tcp", "-tcpPort", str(self._port), "-ifNotExists")
        self._process = subprocess.Popen(
            [self._java, "-Xmx64m", "-cp", self._jars, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._answers, lambda: "a database that answers", 60)
        # It stays when nobody is connected.
        self.run("set db_close_delay -1")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def run(self, *statements: str) -> None:
        """Run statements of SQL."""
        shell = ("org.h2.tools.Shell", "-url", self.url, "-user", "sa", "-password", self.password)
        done = subprocess.run(
            [self._java, "-Xmx64m", "-cp", self._jars, *shell, "-sql", "; ".join(statements)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert not done.returncode, done.stdout + done.stderr

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1):
                return True
        except OSError:
            return False
