"""A topic of Kafka, read on from where the last transaction ended.

In: the position that the database holds, as facts of `kafka_offset`, and the offsets that the broker has. Out: the
messages between, as `RawRows`, and the facts that move the position. Always: position and messages are in one
transaction, so after a failure at any moment the next read begins where the last committed one ended, and a message
counts once; a second transaction that begins at the same place retracts a position that is not there any more, and is
refused. A rollback moves the position with the facts.

The offsets come from the client in the driver's JVM, because Spark reads a batch only between offsets that are known
for every partition; the messages are read by the executors. Only messages of committed transactions of Kafka count.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.bulk.failures import package_missing
from engine.bulk.outside import EARLIEST, LATEST, OFFSETS, Connection, topic_of
from engine.bulk.reading import BLOCK, FILE, PLACE, VALUE, RawRows, json_rows, placed, shaped
from engine.bulk.request import JSONL, ImportRequest
from engine.data.transaction import FactChange
from engine.errors import (
    HeaderMismatchError,
    SourceRefusedError,
    SourceUnreachableError,
    SourceUnreadableError,
    SparkUnavailableError,
    StreamGapError,
    ZedlogError,
)
from engine.language.schema import Schema

DECLARATION: Final = f".decl {OFFSETS}(stream: symbol, relation: symbol, partition: number, next: number)"
_ANSWER_SECONDS: Final = 15
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_CORRUPT = "_corrupt"
_HEADER = "header"
_REFUSED = ("SaslAuthenticationException", "AuthorizationException", "SslAuthenticationException")


@dataclass(frozen=True, slots=True)
class Portion:
    """What one transaction reads. begins, ends: by partition, the first offset, and the one after the last. kept: the
    positions before, where there were some. newest: the offsets after the last messages of the broker."""

    begins: Mapping[int, int]
    ends: Mapping[int, int]
    kept: Mapping[int, int]
    newest: Mapping[int, int]

    @property
    def messages(self) -> int:
        """How many offsets it covers; some may hold no message."""
        return sum(self.ends[p] - self.begins[p] for p in self.ends)

    @property
    def lag(self) -> int:
        """How many offsets are left after it."""
        return sum(self.newest[p] - self.ends[p] for p in self.ends)

    def moved(self, stream: str, relation: str) -> tuple[FactChange, ...]:
        """The change of the position; empty if it stays."""
        gone = [(stream, relation, p, at) for p, at in self.kept.items() if self.ends[p] != at]
        come = [(stream, relation, p, at) for p, at in self.ends.items() if self.kept.get(p) != at]
        changes = ((gone, -1), (come, 1))
        return tuple(FactChange(OFFSETS, rows, weight) for rows, weight in changes if rows)


def portion(
    topic: str,
    kept: Mapping[int, int],
    broker: Mapping[int, tuple[int, int]],
    starting: str = EARLIEST,
    most: int | None = None,
) -> Portion:
    """What to read next. broker: for each partition the oldest offset that is there, and the one after the newest.

    most: the most offsets, shared by the partitions.

    Raises:
        StreamGapError: messages after the position are no longer there, or the position is past the end.
    """
    gone = sorted(set(kept) - set(broker))
    if gone:
        raise StreamGapError(
            f"the topic {topic} has no partition {gone[0]} any more, of which messages were read before; it was made "
            f"anew. To read it from its beginning, retract the facts of the stream in {OFFSETS}",
            topic=topic,
            partition=gone[0],
        )
    begins: dict[int, int] = {}
    for partition, (oldest, newest) in sorted(broker.items()):
        # A partition that came later begins with its first message, wherever the stream began.
        first = newest if starting == LATEST and not kept else oldest
        begin = kept.get(partition, first)
        if not oldest <= begin <= newest:
            why = (
                f"the messages from offset {begin:,} to {oldest - 1:,} are no longer there"
                if begin < oldest
                else f"the next offset would be {begin:,}, but the topic ends at {newest:,}: it was made anew"
            )
            raise StreamGapError(
                f"the stream of the topic {topic} cannot go on in the partition {partition}: {why}. To go on without "
                f"them, change its fact in {OFFSETS} to an offset from {oldest:,} to {newest:,}",
                topic=topic,
                partition=partition,
                position=begin,
                oldest=oldest,
                newest=newest,
            )
        begins[partition] = begin
    newest_of = {partition: newest for partition, (_, newest) in broker.items()}
    left = sum(newest_of.values()) if most is None else most
    ends = dict(begins)
    for number, partition in enumerate(begins):
        # Each gets an equal share of what is left, and what one leaves the next ones get.
        share = -(-left // (len(begins) - number))
        ends[partition] = (
            min(newest_of[partition], begins[partition] + share) if most else newest_of[partition]
        )
        left -= ends[partition] - begins[partition]
    return Portion(begins, ends, dict(kept), newest_of)


class Topic:
    """One topic, as an import reads it."""

    def __init__(self, session: SparkSession, request: ImportRequest, known: Connection) -> None:
        self._session, self._request, self._known = session, request, known
        self.brokers, self.topic = topic_of(request.paths[0])
        self.stream = request.options.stream or self.topic

    def offsets(self) -> dict[int, tuple[int, int]]:
        """For each partition the oldest offset, and the one after the newest.

        Raises:
            PackageMissingError, SparkUnavailableError: there is no client here. SourceUnreachableError: no broker
            answers in time. SourceRefusedError: it refuses the credentials. SourceUnreadableError: there is no such
            topic.
        """
        jvm: Any = getattr(self._session, "_jvm", None)
        if jvm is None:
            raise SparkUnavailableError(
                "a topic is read with the Kafka client of Spark's driver, which Spark Connect does not show; "
                "use a master such as local[2] or spark://host:port"
            )
        options = self._client_options()
        if not _has_client(jvm):
            raise package_missing("kafka", self._session.version)
        given = jvm.java.util.HashMap()
        for name, value in options.items():
            given.put(name, value)
        wait = jvm.java.time.Duration.ofSeconds(_ANSWER_SECONDS)
        try:
            consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(given)
            try:
                found = [part.partition() for part in consumer.partitionsFor(self.topic, wait) or ()]
                parts = jvm.java.util.ArrayList()
                for number in found:
                    parts.add(jvm.org.apache.kafka.common.TopicPartition(self.topic, number))
                oldest, newest = consumer.beginningOffsets(parts, wait), consumer.endOffsets(parts, wait)
                answer = {p.partition(): (int(oldest[p]), int(newest[p])) for p in parts}
            finally:
                consumer.close(jvm.java.time.Duration.ofSeconds(1))
        except Exception as error:
            raise self._explained(error) from error
        if not answer:
            raise self._unknown()
        return answer

    def read(self, what: Portion, schema: Schema | None) -> RawRows:
        """The messages.

        Raises:
            HeaderMismatchError: their fields are not those of the relation.
        """
        options = {
            **{name: value for name, value in self._known.options.items() if name.startswith("kafka.")},
            "kafka.bootstrap.servers": self.brokers,
            "kafka.isolation.level": "read_committed",
            "subscribe": self.topic,
            "startingOffsets": self._spot(what.begins),
            "endingOffsets": self._spot(what.ends),
            "failOnDataLoss": "true",
            "includeHeaders": str(self._request.options.weight_header is not None).lower(),
        }
        rows = self._session.read.format("kafka").options(**options).load()
        headers = (
            [_weight_header(self._request.options.weight_header)]
            if options["includeHeaders"] == "true"
            else []
        )
        messages = rows.select(
            F.col("value").cast("string").alias(VALUE),
            F.lit(self.topic).alias(FILE),
            F.col("partition").cast("long").alias(BLOCK),
            F.col("offset").alias(PLACE),
            *headers,
        )
        wanted = None if schema is None else [column.name for column in schema.columns]
        if self._request.format == JSONL:
            given = F.try_parse_json(F.col(_HEADER)) if headers else None
            return json_rows(messages, self._request, wanted, given, messages=True)
        return self._lines(messages, wanted, F.col(_HEADER) if headers else None)

    def report(self, what: Portion) -> dict[str, Any]:
        """For the job's result."""
        return {
            "stream": self.stream,
            "topic": self.topic,
            "messages": what.messages,
            "lag": what.lag,
            "offsets": {str(partition): end for partition, end in what.ends.items()},
        }

    def _spot(self, offsets: Mapping[int, int]) -> str:
        return orjson.dumps({self.topic: {str(p): at for p, at in offsets.items()}}).decode()

    def _client_options(self) -> dict[str, str]:
        own = {n.removeprefix("kafka."): v for n, v in self._known.options.items() if n.startswith("kafka.")}
        milliseconds = str(_ANSWER_SECONDS * 1000)
        return {
            "default.api.timeout.ms": milliseconds,
            "request.timeout.ms": milliseconds,
            "allow.auto.create.topics": "false",
            "isolation.level": "read_committed",
            **own,
            "bootstrap.servers": self.brokers,
            "key.deserializer": _BYTES,
            "value.deserializer": _BYTES,
        }

    def _explained(self, error: Exception) -> ZedlogError:
        text = self._known.cleaned(str(error))
        if "UnknownTopicOrPartition" in text:
            return self._unknown()
        # The lines without the stack trace.
        lines = [line.strip() for line in text.splitlines() if "Exception" in line] or [type(error).__name__]
        line = re.sub(r"^(Caused by: |: )?([\w.$]+Exception: )?", "", lines[-1])
        if any(word in text for word in _REFUSED):
            return SourceRefusedError(
                f"the broker {self.brokers} refuses: {line}; its user and password are lines kafka.sasl... of a "
                "connection's file",
                brokers=self.brokers,
            )
        return SourceUnreachableError(
            f"no broker of {self.brokers} answered within {_ANSWER_SECONDS} seconds: {line}",
            brokers=self.brokers,
        )

    def _unknown(self) -> SourceUnreadableError:
        return SourceUnreadableError(
            f"there is no topic {self.topic} at {self.brokers}, or it may not be read", topic=self.topic
        )

    def _lines(self, messages: DataFrame, wanted: list[str] | None, header: Column | None) -> RawRows:
        """Messages that are lines of CSV or TSV."""
        request = self._request
        value = F.regexp_replace(VALUE, r"\r?\n\z", "")
        width = 0 if request.columns else len(wanted or request.types)
        if width:
            width += request.weight_column is not None
        else:
            # Nothing else says how many fields there are.
            some = messages.filter(F.length(F.col(VALUE)) > 0).select(value.alias(VALUE)).first()
            line = "" if some is None else str(some[VALUE])
            width = len(next(csv.reader([line], delimiter=request.separator), []))
        if not width:
            raise HeaderMismatchError(
                f"no message of {self.topic} says how many fields there are; give 'types'", columns=0
            )
        names = [f"f{i}" for i in range(width)]
        places, weight = placed(names, request, wanted)
        options = {
            "sep": request.separator,
            "quote": '"',
            "escape": '"',
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "maxCharsPerColumn": "-1",
        }
        fields = ", ".join(f"{name} string" for name in names)
        parsed = messages.withColumn("row", F.from_csv(value, f"{fields}, {_CORRUPT} string", options))
        columns = [F.coalesce(F.col(f"row.{name}"), F.lit("")) for name in names]
        reason = (
            F.when(F.col(VALUE).isNull(), F.lit("a message without a value"))
            .when(~F.is_valid_utf8(F.col(VALUE)), F.lit("not UTF-8"))
            .when(value.rlike(r"[\r\n]"), F.lit("more than one line"))
            .when(
                F.col(f"row.{_CORRUPT}").isNotNull() | F.col("row").isNull(),
                F.lit(f"not {width} field{'s' * (width != 1)}"),
            )
        )
        given = header if header is not None else None if weight is None else columns[weight]
        frame = shaped(parsed, [columns[i] for i in places], F.col(VALUE), reason, given)
        return RawRows(frame, len(places), messages=True)


def _weight_header(name: str | None) -> Column:
    """The text of the first header of that name; null if there is none."""
    header = F.get(F.filter("headers", lambda h: h["key"] == F.lit(name)), F.lit(0))
    return header["value"].cast("string").alias(_HEADER)


def _has_client(jvm: Any) -> bool:
    """Whether Spark was started with the connector and its client."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName("org.apache.spark.sql.kafka010.KafkaSourceProvider", False, loader)
        jvm.java.lang.Class.forName("org.apache.kafka.clients.consumer.KafkaConsumer", False, loader)
    except Exception:
        return False
    return True
