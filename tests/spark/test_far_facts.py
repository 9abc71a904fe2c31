"""Imports whose facts stay on the executors, against the same imports on the resident placement: equal facts, weights,
derived relations and refusals, whatever the codes are. All new symbols of the imports stay there, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.bulk.batches import WEIGHT, BatchStore
from engine.data.arrow import columns
from engine.data.facts import ARROW_TYPES
from engine.data.transaction import MAX_WEIGHT, Transaction, rule_changes
from engine.database.epoch import EpochResult
from engine.errors import (
    ArityError,
    BatchUnreadableError,
    InvalidValueError,
    NegativeWeightError,
    SourcedFactError,
    TypeMismatchError,
    UnsupportedFeatureError,
    WeightOverflowError,
    ZedlogError,
)
from engine.language.schema import ColumnType
from engine.spark.placement import SparkPlacement
from engine.spark.session.session import SparkSource
from tests.spark.conftest import classic, patient
from zedlog import Reasoner

pytestmark = [patient, classic]
Row = tuple[tuple[Any, ...], int]
SYMBOL, NUMBER, FLOAT, BOOL = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL
EDGE = (SYMBOL, SYMBOL)


class Stand:
    """One reasoner, to which transactions with batch files are applied."""

    def __init__(self, folder: Path, reasoner: Reasoner) -> None:
        self.reasoner = reasoner
        self.store = BatchStore(folder)
        self.number = 0

    def batch(self, relation: str, types: Sequence[ColumnType], rows: Sequence[Row], files: int = 2) -> Any:
        """A batch in `files` files."""
        self.number += 1
        folder = self.store.folder(f"job{self.number}")
        schema = pa.schema(
            [
                *zip(columns(len(types)), (ARROW_TYPES[kind] for kind in types), strict=True),
                (WEIGHT, pa.int64()),
            ]
        )
        paths = []
        for i in range(files):
            paths.append(folder / f"part-{i}.parquet")
            held = [
                dict(zip(schema.names, (*values, weight), strict=True)) for values, weight in rows[i::files]
            ]
            pq.write_table(pa.Table.from_pylist(held, schema), paths[-1])
        return self.store.keep(f"job{self.number}", relation, types, paths)

    def apply(self, *batches: Any, rules: Mapping[str, int] | None = None, **more: Any) -> EpochResult:
        transaction = Transaction(batches=batches, rules=rule_changes(list((rules or {}).items())), **more)
        outcome = self.reasoner.commit([self.store.load(transaction)]).outcomes[0]
        if isinstance(outcome, ZedlogError):
            raise outcome
        return outcome

    def bring(
        self, relation: str, types: Sequence[ColumnType], rows: Sequence[Row], **more: Any
    ) -> EpochResult:
        return self.apply(self.batch(relation, types, rows), **more)


class Stands:
    """The same on both placements; their states are compared when a test ends."""

    def __init__(self, stands: Mapping[str, Stand]) -> None:
        self.stands = stands
        self.far = stands["far"]

    def each(self, do: Callable[[Stand], Any]) -> Any:
        """Do it everywhere; what came of it, which must be the same."""
        told = {name: _outcome(do, stand) for name, stand in self.stands.items()}
        assert told["far"] == told["resident"]
        return told["far"]

    def compare(self) -> None:
        states = {name: _state(stand.reasoner) for name, stand in self.stands.items()}
        for name, state in states.items():
            assert state == states["resident"], name

    def bring(self, relation: str, types: Sequence[ColumnType], rows: Sequence[Row], **more: Any) -> None:
        self.each(lambda stand: stand.bring(relation, types, rows, **more))

    def refused(self, error: type[ZedlogError], do: Callable[[Stand], Any]) -> None:
        symbols = [stand.reasoner.database.symbols for stand in self.stands.values()]
        known = [len(table) for table in symbols]
        assert self.each(do)[0] is error
        assert [len(table) for table in symbols] == known


def _outcome(do: Callable[[Stand], Any], stand: Stand) -> Any:
    try:
        done = do(stand)
    except ZedlogError as error:
        detail = dict(error.detail)
        tuples = detail.pop("tuples", ())
        rest = {key: value for key, value in detail.items() if key not in ("weights", "changes", "claimed")}
        return type(error), rest, sorted(map(repr, tuples)), sorted(detail.get("weights", ()))
    changes = {name: sorted(map(repr, rows)) for name, rows in done.changes.items()}
    return done.epoch, done.dry_run, done.counts, changes


def _state(reasoner: Reasoner) -> dict[str, Any]:
    names = {*reasoner.relations(), *reasoner.database.program.stored}
    held: dict[str, Any] = {}
    for name in names:
        key = reasoner.database.program.key(name)
        if name in reasoner.relations():
            held[name] = sorted(map(repr, reasoner.weighted(name))), reasoner.count(name, "derived")
        else:
            held[name] = reasoner.database.placement.count(key, "asserted")
    return held


@pytest.fixture
def stands(source: SparkSource, tmp_path: Path) -> Iterator[Stands]:
    session = source.session()
    # Only imports and their symbols are far; the work on the strata, which other tests look at, is in the driver.
    far = replace(source.options, import_rows=0, partitions=3)
    made = {"resident": Reasoner("resident"), "far": Reasoner("spark", spark=SparkSource(far, session))}
    both = Stands({name: Stand(tmp_path / name, reasoner) for name, reasoner in made.items()})
    yield both
    both.compare()
    for reasoner in made.values():
        reasoner.close()


def edges(*pairs: str, weight: int = 1) -> list[Row]:
    return [((pair[0], pair[1]), weight) for pair in pairs]


PATHS = {"path(x, y) :- edge(x, y).": 1, "path(x, z) :- path(x, y), edge(y, z).": 1}


def test_differential_mixed_types_and_texts(stands: Stands) -> None:
    rows: list[Row] = [
        (("a", 1, 0.5, True), 2),
        (("", -(2**63), -0.0, False), 1),
        (('Zürich\n"ß" 🎈', 2**63 - 1, 5e-324, True), 3),
        (("a", 1, 0.0, True), 1),
        (("a\u0301", 0, -1.7976931348623157e308, False), 4),
        (("á", 0, 1 / 3, False), 1),
        (("gone", 7, 2.5, True), 0),
    ]
    stands.bring("r", (SYMBOL, NUMBER, FLOAT, BOOL), rows)
    held = dict(stands.far.reasoner.weighted("r"))
    assert held == {values: weight for values, weight in rows if weight}
    signs = [math.copysign(1, values[2]) for values in held if values[2] == 0]
    assert signs == [1, 1]
    assert stands.far.reasoner.database.symbols.is_far
    assert not stands.far.reasoner.database.symbols.near[0]
    assert stands.far.reasoner.database.symbols.find("gone") is None


def test_differential_symbols_keep_their_codes(stands: Stands) -> None:
    """Texts come from rules, small transactions, and three imports, again and again; no text has two codes."""
    stands.each(lambda stand: stand.reasoner.apply(facts={"edge": [(("a", "b"), 1)]}, rules=[*PATHS.items()]))
    stands.bring("edge", EDGE, edges("bc", "cd", "ab", "dd"))
    stands.each(lambda stand: stand.reasoner.apply(facts={"edge": [(("d", "e"), 1), (("x", "a"), 1)]}))
    stands.bring("edge", EDGE, edges("ef", "xf", "ga"), rules={'near(x) :- edge("g", x), edge(x, "b").': 1})
    stands.each(lambda stand: stand.reasoner.apply(facts={"edge": [(("a", "b"), -1), (("f", "a"), 1)]}))
    stands.bring("other", (SYMBOL,), [((text,), 1) for text in "abcdefgxyz"])
    symbols = stands.far.reasoner.database.symbols
    texts = [text for text in symbols.all() if text is not None]
    assert len(set(texts)) == len(texts) == len(symbols)
    assert [symbols.find(text) for text in texts] == list(range(len(texts)))


def test_differential_retractions(stands: Stands) -> None:
    stands.bring("edge", EDGE, edges("ab", "bc", "cd", weight=2), rules=PATHS)
    stands.bring("edge", EDGE, [*edges("ab", weight=-1), *edges("bc", weight=-2), *edges("de")])
    # The same tuple three times, in several files: together it is a retraction.
    stands.bring("edge", EDGE, [*edges("ab"), *edges("ab", weight=-1), *edges("ab", weight=-1), *edges("ee")])
    stands.refused(NegativeWeightError, lambda s: s.bring("edge", EDGE, edges("cd", "qq", "ab", weight=-1)))
    # All facts of the relation go, so it may get others of another type with the same transaction.
    everything = edges("cd", "cd", "de", "ee", weight=-1)
    stands.each(
        lambda s: s.apply(s.batch("edge", EDGE, everything), s.batch("edge", (NUMBER, NUMBER), [((1, 2), 1)]))
    )
    assert stands.far.reasoner.facts("path") == [(1, 2)]


def test_differential_weights_that_do_not_fit(stands: Stands) -> None:
    stands.bring("p", (SYMBOL,), [(("a",), MAX_WEIGHT - 1), (("b",), 1)])
    heavy: list[Row] = [(("a",), 2), (("c",), 1)]
    stands.refused(WeightOverflowError, lambda s: s.bring("p", (SYMBOL,), heavy))
    unfit: list[Row] = [(("n",), MAX_WEIGHT), (("n",), MAX_WEIGHT)]
    stands.refused(WeightOverflowError, lambda s: s.bring("p", (SYMBOL,), unfit))
    fits: list[Row] = [(("n",), MAX_WEIGHT), (("n",), -MAX_WEIGHT), (("a",), 1), (("n",), 3)]
    stands.bring("p", (SYMBOL,), fits)


def test_differential_sources(stands: Stands) -> None:
    stands.bring("edge", EDGE, edges("ab", "bc", weight=2), source="hr", rules=PATHS)
    stands.bring("edge", EDGE, edges("ab", "xy"))
    stands.bring("edge", EDGE, [*edges("ab", weight=-1), *edges("cd")], source="hr")
    stands.refused(NegativeWeightError, lambda s: s.bring("edge", EDGE, edges("xy", weight=-1), source="hr"))
    stands.refused(SourcedFactError, lambda s: s.bring("edge", EDGE, edges("bc", weight=-1)))
    stands.bring("edge", EDGE, edges("xy", weight=-1))


def test_differential_sets_and_dry_runs(stands: Stands) -> None:
    stands.bring("edge", EDGE, edges("ab", "bc", "bc"), mode="set", rules=PATHS)
    stands.bring("edge", EDGE, [*edges("ab", weight=-1), *edges("bc", "cd")], mode="set")
    known = len(stands.far.reasoner.database.symbols)
    stands.bring("edge", EDGE, edges("zy", "yx"), dry_run=True)
    assert len(stands.far.reasoner.database.symbols) == known
    stands.bring("edge", EDGE, edges("yz"))


def test_differential_refusals(stands: Stands) -> None:
    stands.bring("edge", EDGE, edges("ab"), rules={"n(count(x)) :- edge(x, _).": 1})
    stands.refused(ArityError, lambda s: s.bring("edge", (SYMBOL,), [(("new",), 1)]))
    stands.refused(TypeMismatchError, lambda s: s.bring("edge", (SYMBOL, NUMBER), [(("new", 1), 1)]))
    stands.refused(InvalidValueError, lambda s: s.bring("f", (SYMBOL, FLOAT), [(("new", math.nan), 1)]))
    stands.refused(InvalidValueError, lambda s: s.bring("f", (FLOAT, FLOAT), [((1.0, math.inf), 1)]))
    stands.refused(UnsupportedFeatureError, lambda s: s.bring("n", (NUMBER,), [((1,), 1)]))
    stands.each(lambda s: s.reasoner.apply(facts={"edge": [(("new", "er"), 1)]}))


def test_files_that_changed_are_refused(stands: Stands) -> None:
    def changed(stand: Stand) -> None:
        batch = stand.batch("edge", EDGE, edges("ab", "cd"))
        path = stand.store.root / batch.files[1].path
        path.write_bytes(path.read_bytes()[:-1])
        stand.apply(batch)

    for stand in stands.stands.values():
        with pytest.raises(BatchUnreadableError, match="SHA-256"):
            changed(stand)
        assert stand.reasoner.epoch == 0


def test_differential_recursion_evaluated_in_the_driver(stands: Stands) -> None:
    """A stratum with a count in recursion gets the facts as arrays."""
    rules = {"big(x) :- seed(x).": 1, "big(y) :- link(y, _), number(y, n), n > 1.": 1}
    rules["number(y, count(x)) :- link(y, x), big(x)."] = 1
    stands.bring("link", EDGE, edges("ca", "cb", "dc", "da", "ed"), rules=rules)
    stands.bring("seed", (SYMBOL,), [(("a",), 1), (("b",), 1)])
    stands.bring("seed", (SYMBOL,), [(("b",), -1)])


def test_differential_several_batches_and_facts_of_one_relation(stands: Stands) -> None:
    def both(stand: Stand) -> EpochResult:
        first, second = (stand.batch("edge", EDGE, edges(*pairs)) for pairs in (("ab", "bc"), ("bc", "cd")))
        transaction = stand.store.load(Transaction(batches=(first, second)))
        extra = Transaction.parse(facts=[{"relation": "edge", "tuples": [["c", "d"], ["d", "e"]]}])
        whole = replace(transaction, facts=(*transaction.facts, *extra.facts))
        (outcome,) = stand.reasoner.commit([whole]).outcomes
        assert isinstance(outcome, EpochResult)
        return outcome

    stands.each(both)
    assert dict(stands.far.reasoner.weighted("edge")) == {
        ("a", "b"): 1,
        ("b", "c"): 2,
        ("c", "d"): 2,
        ("d", "e"): 1,
    }


def test_a_group_of_imports_shares_nothing(stands: Stands) -> None:
    def group(stand: Stand) -> Any:
        loaded = [
            stand.store.load(Transaction(batches=(stand.batch("edge", EDGE, rows),)))
            for rows in (edges("ab"), edges("ab", weight=-2), edges("bc"))
        ]
        outcomes = stand.reasoner.commit(loaded).outcomes
        return [type(outcome) for outcome in outcomes]

    for stand in stands.stands.values():
        assert group(stand) == [EpochResult, NegativeWeightError, EpochResult]


def test_texts_come_home_with_the_state(stands: Stands) -> None:
    stands.bring("edge", EDGE, edges("ab", "bc"), rules=PATHS)
    stands.each(lambda s: s.reasoner.apply(facts={"edge": [(("b", "new"), 1)]}))
    far = stands.far.reasoner
    far.move_to("resident")
    assert not far.database.symbols.is_far
    stands.bring("edge", EDGE, edges("cd"))


def test_storage_is_given_back(stands: Stands) -> None:
    stands.bring("edge", EDGE, edges("ab", "bc", "cd"), rules=PATHS)
    stands.refused(NegativeWeightError, lambda s: s.bring("edge", EDGE, edges("zz", weight=-1)))
    placement = stands.far.reasoner.database.placement
    assert isinstance(placement, SparkPlacement)
    assert placement._facts._made == []
    assert [(layer.first, layer.stop) for layer in placement._dictionary._layers] == [(0, 4)]
