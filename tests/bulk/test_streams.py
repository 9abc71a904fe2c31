"""The position in a topic, what an import may ask of things outside of files, and whom a password is sent to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.bulk.failures import explained_outside, package_missing
from engine.bulk.outside import NOTHING, OFFSETS, Connection, Outside, connection
from engine.bulk.request import ImportRequest
from engine.bulk.streams import DECLARATION, portion
from engine.data.transaction import FactChange, Transaction
from engine.errors import (
    InvalidRequestError,
    NegativeWeightError,
    PathNotAllowedError,
    SourceUnreadableError,
    StreamGapError,
    ZedlogError,
)
from service.bulk_models import ImportBody
from service.validation import read_as
from zedlog import Reasoner


def request(**body: Any) -> ImportRequest:
    return read_as(ImportBody, body).request()


class Stream:
    """A topic that is a list of numbers for each partition, read into a reasoner portion by portion."""

    def __init__(self) -> None:
        self.reasoner = Reasoner()
        self.reasoner.apply(declarations=DECLARATION + " .decl seen(p: number, n: number)")
        self.topic: dict[int, list[int]] = {0: [], 1: []}

    def kept(self) -> dict[int, int]:
        return {row[2]: row[3] for row in dict(self.reasoner.weighted(OFFSETS, "asserted"))}

    def read(self, most: int | None = None) -> Transaction:
        broker = {p: (0, len(messages)) for p, messages in self.topic.items()}
        what = portion("t", self.kept(), broker, most=most)
        rows = [[p, n] for p in broker for n in self.topic[p][what.begins[p] : what.ends[p]]]
        made = (FactChange("seen", rows), *what.moved("t", "seen"))
        # As it goes through the log.
        return Transaction.decode(Transaction(facts=tuple(f for f in made if f.tuples)).encode())

    def commit(self, transaction: Transaction) -> None:
        outcome = self.reasoner.commit([transaction]).outcomes[0]
        if isinstance(outcome, ZedlogError):
            raise outcome

    def seen(self) -> Mapping[Any, int]:
        return dict(self.reasoner.weighted("seen", "asserted"))


def test_each_message_counts_once_whatever_is_lost_between_reading_and_committing() -> None:
    stream = Stream()
    for step in range(12):
        for partition in stream.topic:
            stream.topic[partition] += range(len(stream.topic[partition]), 7 * (step + 1) + partition)
        stream.read()  # This reader was killed before its transaction was in the log.
        stream.commit(stream.read(most=5))
    while (transaction := stream.read()).facts:
        stream.commit(transaction)
    expected = {(p, n): 1 for p, messages in stream.topic.items() for n in messages}
    assert stream.seen() == expected
    assert stream.kept() == {0: 84, 1: 85}


def test_the_second_of_two_readers_that_began_at_the_same_place_is_refused() -> None:
    stream = Stream()
    stream.topic[0] += [1]
    stream.commit(stream.read())
    stream.topic[0] += [2]
    one, other = stream.read(), stream.read()
    stream.commit(one)
    with pytest.raises(NegativeWeightError):
        stream.commit(other)
    assert set(stream.seen().values()) == {1}


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_a_portion_takes_at_most_so_many_messages_and_leaves_none_out(most: int) -> None:
    broker = {0: (0, 10), 1: (0, 0), 2: (5, 9)}
    kept: dict[int, int] = {}
    read = []
    while (what := portion("t", kept, broker, most=most)).messages:
        assert what.messages <= most
        read += [(p, n) for p in broker for n in range(what.begins[p], what.ends[p])]
        kept = dict(what.ends)
    assert sorted(read) == [(p, n) for p, (oldest, newest) in broker.items() for n in range(oldest, newest)]
    assert what.lag == 0


def test_a_stream_may_begin_at_the_end_but_a_new_partition_begins_at_its_beginning() -> None:
    first = portion("t", {}, {0: (3, 10)}, "latest")
    assert (first.messages, dict(first.ends)) == (0, {0: 10})
    later = portion("t", first.ends, {0: (3, 12), 1: (0, 4)}, "latest")
    assert (dict(later.begins), later.messages) == ({0: 10, 1: 0}, 6)


@pytest.mark.parametrize(
    ("kept", "broker", "says"),
    [
        ({0: 3}, {0: (5, 9)}, "offset 3 to 4 are no longer there"),
        ({0: 30}, {0: (0, 9)}, "the next offset would be 30, but the topic ends at 9"),
        ({0: 3, 1: 4}, {0: (0, 9)}, "no partition 1 any more"),
    ],
)
def test_a_gap_is_an_error_that_says_how_to_go_on(
    kept: dict[int, int], broker: dict[int, tuple[int, int]], says: str
) -> None:
    with pytest.raises(StreamGapError) as raised:
        portion("t", kept, broker)
    assert says in raised.value.message
    assert OFFSETS in raised.value.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"path": "kafka://broker/"}, "path"),
        ({"path": "kafka://b:1/t", "mode": "set"}, "mode"),
        ({"path": "kafka://b:1/t", "format": "parquet"}, "format"),
        ({"path": "kafka://b:1/t", "header": True, "format": "csv"}, "header"),
        ({"path": "kafka://b:1/t", "options": {"table": "x"}}, "table"),
        ({"paths": ["kafka://b:1/t", "kafka://b:1/u"]}, "paths"),
        ({"path": "jdbc:h2:mem:x"}, "table"),
        ({"path": "jdbc:h2:mem:x", "options": {"table": "a", "query": "b"}}, "table"),
        ({"path": "jdbc:h2:mem:x;PASSWORD=secret", "options": {"table": "a"}}, "path"),
        ({"path": "jdbc:pg://me:secret@db/x", "options": {"table": "a"}}, "path"),
        ({"path": "jdbc:h2:mem:x", "format": "csv", "options": {"table": "a"}}, "format"),
        ({"path": "jdbc:h2:mem:x", "options": {"table": "a", "partitions": 3}}, "partitions"),
        (
            {"path": "t", "format": "delta", "options": {"version_as_of": "1", "timestamp_as_of": "2"}},
            "version_as_of",
        ),
        ({"path": "e.csv", "options": {"stream": "s"}}, "stream"),
        ({"path": "e.csv", "replace": True}, "replace"),
        ({"path": "e.csv", "replace": True, "source": "s", "weight": -1}, "replace"),
        ({"path": "e.csv", "allow_empty": True}, "allow_empty"),
    ],
)
def test_what_contradicts_itself_or_has_no_effect_is_refused(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        request(relation="e", **body)
    assert raised.value.detail["field"] == field
    assert "secret" not in raised.value.message


def test_a_request_comes_back_from_the_job_that_keeps_it() -> None:
    options = {"stream": "s", "max_messages": 5, "weight_header": "op"}
    made = request(path="kafka://b:1,c:2/t", relation="e", options=options)
    assert (made.format, made.kind, made.options) == ("jsonl", "kafka", Outside(**options))
    assert ImportRequest.restore(made.as_json()) == made
    plain = request(path="e.csv", relation="e")
    assert ImportRequest.restore(plain.as_json()) == plain
    assert plain.options is not NOTHING or "options" not in plain.as_json()
    assert "options" not in plain.as_json()


def test_a_connection_has_secrets_that_no_message_shows_and_is_for_its_url_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    (tmp_path / "shop.properties").write_text(
        "# the shop\nurl=jdbc:postgresql://db\nuser=reader\npassword=${SHOP_PASSWORD}\n"
    )
    found = connection(tmp_path, "shop", "jdbc:postgresql://db/shop")
    assert dict(found.options) == {"user": "reader", "password": "s3cret"}
    assert found.cleaned("FATAL: s3cret") == "FATAL: ***"
    for url in ("jdbc:postgresql://db.evil.example/shop", "jdbc:h2:mem:x"):
        with pytest.raises(PathNotAllowedError):
            connection(tmp_path, "shop", url)
    monkeypatch.delenv("SHOP_PASSWORD")
    with pytest.raises(SourceUnreadableError, match="SHOP_PASSWORD"):
        connection(tmp_path, "shop", "jdbc:postgresql://db/shop")


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "cannot be read"), ("user=x\n", "no line url="), ("url\n", "line 1")],
)
def test_a_connection_that_cannot_be_used_says_why(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "c.properties").write_text(text)
    with pytest.raises(SourceUnreadableError, match=says):
        connection(tmp_path, "c", "jdbc:h2:mem:x")
    with pytest.raises(SourceUnreadableError, match="--connections"):
        connection(None, "c", "jdbc:h2:mem:x")


@pytest.mark.parametrize(
    ("kind", "driver", "named"),
    [
        ("kafka", "", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"),
        ("avro", "", "org.apache.spark:spark-avro_2.13:4.3.0"),
        ("delta", "", "io.delta:delta-spark_4.3_2.13:VERSION"),
        ("iceberg", "", "org.apache.iceberg:iceberg-spark-runtime-4.3_2.13:VERSION"),
        ("jdbc", "postgresql", "org.postgresql:postgresql:VERSION"),
    ],
)
def test_a_missing_package_is_named(kind: str, driver: str, named: str) -> None:
    error = package_missing(kind, "4.3.0", driver)
    assert error.detail["package"] == named
    assert f"--spark-packages {named}" in error.message


@pytest.mark.parametrize(
    ("body", "text", "code", "says"),
    [
        (
            {"path": "t", "format": "delta"},
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.",
            "package_missing",
            "io.delta:delta-spark_4.3_2.13",
        ),
        (
            {"path": "t", "format": "delta"},
            "calling o1.load.\n: java.lang.NoSuchMethodError: 'void LogicalRDD.<init>()'\n\tat x",
            "package_missing",
            "does not work with Spark 4.3.0: 'void LogicalRDD.<init>()'",
        ),
        (
            {"path": "t", "format": "iceberg"},
            "calling o1.load.\n: java.lang.IncompatibleClassChangeError: Found interface CatalogManager",
            "package_missing",
            "does not work with Spark 4.3.0: Found interface CatalogManager",
        ),
        (
            {"path": "t", "format": "delta", "options": {"version_as_of": "77"}},
            "[DELTA_VERSION_NOT_FOUND] Cannot time travel Delta table to version 77.",
            "source_unreadable",
            "t has no state 77",
        ),
        (
            {"path": "jdbc:h2:mem:x", "options": {"table": "t"}},
            'x\nCaused by: org.h2.jdbc.JdbcSQLSyntaxErrorException: Table "T" not found',
            "source_unreadable",
            'cannot read t: Table "T" not found',
        ),
        (
            {"path": "jdbc:h2:mem:x", "options": {"table": "t"}},
            "x\nCaused by: org.h2.jdbc.JdbcSQLInvalidAuthorizationSpecException: Wrong user name or password s3cret",
            "source_refused",
            "Wrong user name or password ***",
        ),
        (
            {"path": "jdbc:postgresql://h/x", "options": {"table": "t"}},
            "x\nCaused by: java.net.ConnectException: Connection refused",
            "source_unreachable",
            "cannot be reached: Connection refused",
        ),
    ],
)
def test_what_drivers_and_connectors_say_becomes_one_clear_error(
    body: dict[str, Any], text: str, code: str, says: str
) -> None:
    known = Connection({"password": "s3cret"}, ("s3cret",))
    found = explained_outside(Exception(text), request(relation="e", **body), known, "4.3.0")
    assert found is not None
    assert (found.code, says in found.message) == (code, True), found.message
