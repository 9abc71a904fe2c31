"""Digests: of contents, whatever way led to them; sound against what a linear hash would not see."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import orjson
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.audit.memory import held, visible
from engine.database.epoch import EpochRecord, RuleInfo, changed_name
from engine.errors import CorruptSnapshotError, ZedlogError
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.resident.placement import ResidentPlacement
from engine.storage.digests import MODULUS, Digester, SymbolHashes, epoch_digest, program_digest
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.manifest import Manifest, SymbolChunk, encode_symbols
from engine.storage.rows import Rows
from tests.audit.published import Published
from tests.oracle.programs import History, histories
from tests.storage.writing import new_publisher
from zedlog import Reasoner

KINDS = (ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.SYMBOL, ColumnType.BOOL)


class Nothing:
    """No chunks of symbols: all that is needed was added."""

    def get(self, names: Sequence[str], /) -> list[bytes]:
        raise AssertionError(names)


def digester(texts: Sequence[str] = ()) -> Digester:
    made = Digester(Nothing())
    made.symbols.add(0, texts)
    return made


def schema(*types: ColumnType, name: str = "r") -> Schema:
    return Schema(name, tuple(Column(f"c{i}", kind) for i, kind in enumerate(types)))


def rows(
    codes: Sequence[Sequence[int]],
    weights: Sequence[int] | None = None,
    derived: Sequence[bool] | None = None,
    hidden: Sequence[bool] | None = None,
) -> Rows:
    n = len(codes)
    table = np.array(codes, np.int64).reshape(n, -1)
    return Rows(
        table,
        np.ones(n, np.int64) if weights is None else np.array(weights, np.int64),
        np.zeros(n, np.bool_) if derived is None else np.array(derived, np.bool_),
        np.zeros(n, np.bool_) if hidden is None else np.array(hidden, np.bool_),
        np.zeros(n, np.int64),
    )


NUMBERS = schema(ColumnType.NUMBER, ColumnType.NUMBER)


def of(found: Rows, what: Schema = NUMBERS) -> int:
    return digester().of_rows(what, found, ())


def test_an_empty_relation_has_the_digest_zero() -> None:
    assert of(rows([[1, 2]]).part(0, 0)) == 0
    assert of(rows([[1, 2]], [0])) == 0, "a tombstone is not there"


def test_each_part_of_a_row_counts() -> None:
    base = rows([[1, 2]])
    other = [
        of(rows([[2, 1]])),
        of(rows([[1, 1]])),
        of(rows([[1, 2]], [2])),
        of(rows([[1, 2]], [1], [True])),
        of(rows([[1, 2]], [1], [False], [True])),
        of(base, schema(ColumnType.NUMBER, ColumnType.NUMBER, name="s")),
        of(base, schema(ColumnType.NUMBER, ColumnType.FLOAT)),
        of(rows([[1, 2, 0]]), schema(*[ColumnType.NUMBER] * 3)),
    ]
    assert len({of(base), *other}) == len(other) + 1


def test_sums_of_two_rows_are_the_sums_of_no_other_two() -> None:
    """Of all pairs over a small grid: a linear hash would have (1, 2) + (3, 4) = (1, 4) + (3, 2)."""
    single = {pair: of(rows([pair])) for pair in itertools.product(range(-3, 4), repeat=2)}
    sums: dict[int, tuple[object, object]] = {}
    for pair in itertools.combinations_with_replacement(single, 2):
        total = (single[pair[0]] + single[pair[1]]) % MODULUS
        assert total not in sums, (pair, sums.get(total))
        sums[total] = pair
    assert len(sums) == 49 * 50 // 2


@pytest.mark.parametrize("kind", KINDS)
def test_values_moved_between_columns_and_rows_count(kind: ColumnType) -> None:
    texts = ["a", "b", "ab", "", "ba", "aa"]
    what, made = schema(kind, kind), digester(texts)
    pairs = list(itertools.product(range(2 if kind is ColumnType.BOOL else 6), repeat=2))
    digests = {made.of_rows(what, rows([pair]), ()) for pair in pairs}
    assert len(digests) == len(pairs)
    # Both halves of a digest are mixed: no two share one of them.
    assert len({d >> 64 for d in digests}) == len({d & (MODULUS - 1 >> 64) for d in digests}) == len(pairs)


def test_weights_do_not_stand_for_each_other() -> None:
    """Weight 2 of one tuple and 1 of another is not 1 and 2."""
    assert of(rows([[1, 2], [3, 4]], [2, 1])) != of(rows([[1, 2], [3, 4]], [1, 2]))


def test_each_bit_of_a_value_changes_about_half_of_the_digest() -> None:
    base = of(rows([[12345, 678]]))
    for bit in range(63):
        changed = (base ^ of(rows([[12345 ^ (1 << bit), 678]]))).bit_count()
        assert 30 < changed < 98, bit


@given(st.data())
def test_the_digest_of_parts_in_any_order_and_layout_is_that_of_the_whole(data: st.DataObject) -> None:
    codes = data.draw(
        st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 2**62)), unique=True, max_size=30)
    )
    weights = data.draw(st.lists(st.integers(1, 2**62), min_size=len(codes), max_size=len(codes)))
    whole = rows(codes or [[0, 0]], weights or [1])
    order = np.array(data.draw(st.permutations(range(len(whole)))), np.int64)
    shuffled = whole.where(order)
    shuffled = replace(shuffled, codes=np.asfortranarray(shuffled.codes))
    cut = data.draw(st.integers(0, len(whole)))
    assert (of(shuffled.part(0, cut)) + of(shuffled.part(cut, len(whole)))) % MODULUS == of(whole)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=40))
def test_a_digest_kept_by_changes_is_that_of_what_is_there(steps: list[tuple[int, int, bool]]) -> None:
    made, digest = digester(), 0
    state: dict[int, tuple[int, bool]] = {}
    for value, weight, derived in steps:
        was, now = state.get(value, (0, False)), (weight, derived)
        change = RelationChange(
            np.array([[value]], np.int64),
            np.array([weight], np.int64),
            np.array([derived]),
            np.array([int(now != (0, False)) - int(was != (0, False))], np.int8),
            np.array([was[0]], np.int64),
            np.array([was[1]]),
        )
        state[value] = now
        digest = made.changed(digest, schema(ColumnType.NUMBER), change, ())
        held = [(v, s) for v, s in state.items() if s != (0, False)]
        whole = rows(
            [[v] for v, _ in held] or [[0]],
            [s[0] for _, s in held] or [0],
            [s[1] for _, s in held] or [False],
        )
        assert digest == made.of_rows(schema(ColumnType.NUMBER), whole, ())


# ---- of whole histories


class Kept:
    """A reasoner whose digests are kept by the changes of its epochs."""

    def __init__(self) -> None:
        self.reasoner = Reasoner(placement="resident", threads=1)
        self.digester = digester()
        self.digests: dict[str, int] = {}

    def take(self, record: EpochRecord) -> None:
        self.digester.symbols.add(record.first_symbol, record.symbols)
        for key in sorted(record.relations, reverse=True):
            name = changed_name(key)
            self.digests[name] = self.digester.changed(
                self.digests.get(name, 0), record.changed_schemas[key], record.relations[key], ()
            )

    def scratch(self) -> Mapping[str, int]:
        return scratch(self.reasoner)

    def present(self) -> Mapping[str, int]:
        return {name: digest for name, digest in self.digests.items() if digest}


def scratch(reasoner: Reasoner) -> dict[str, int]:
    """The digests of what a reasoner holds, from nothing."""
    placement, program = reasoner.database.placement, reasoner.database.program
    assert isinstance(placement, ResidentPlacement)
    made = Digester(Nothing())
    made.symbols.add(0, reasoner.database.symbols.all())
    found = {}
    for name, what in program.schemas.items():
        relation = placement.relations.get(program.key(name))
        if relation is not None and relation.live:
            found[name] = made.of_rows(what, visible(held(relation), relation.fold), ())
    return {name: digest for name, digest in found.items() if digest}


def applied(kept: Kept, history: History) -> None:
    for i, epoch in enumerate(history.epochs):
        try:
            declarations = history.declarations() if i == 0 else ""
            result = kept.reasoner.apply(
                facts=epoch.fact_changes(), rules=epoch.rule_changes(), declarations=declarations
            )
        except ZedlogError:
            continue
        kept.take(result.record)


@settings(max_examples=60)
@given(histories())
def test_kept_by_deltas_equal_to_scratch_and_to_another_order(history: History) -> None:
    kept = Kept()
    applied(kept, history)
    assert kept.present() == kept.scratch()
    saved = kept.reasoner.export()
    # The same contents, all at once, with the symbols in the opposite order.
    other = Reasoner(placement="resident", threads=1)
    for text in reversed([text for text in saved.symbols if text is not None]):
        other.database.symbols.intern(text)
    facts = {name: kept.reasoner.weighted(name, "asserted") for name in kept.reasoner.relations()}
    other.apply(
        facts={name: list(reversed(tuples)) for name, tuples in facts.items() if tuples},
        rules=[(rule.text, rule.weight) for rule in kept.reasoner.rules()],
        declarations=saved.declarations,
    )
    assert scratch(other) == kept.scratch()


def test_of_folds_with_hidden_facts() -> None:
    """A fact that only contributes to a minimum appears, is hidden, comes back, and loses its rule."""
    kept = Kept()
    steps: list[dict[str, object]] = [
        {"rules": [("best(x, min(c)) :- offer(x, c).", 1)], "facts": {"offer": [(("a", 5), 1)]}},
        {"facts": {"best": [(("a", 7), 2)]}},
        {"facts": {"offer": [(("a", 5), -1)]}},
        {"facts": {"offer": [(("a", 3), 1)]}},
        {"rules": [("best(x, min(c)) :- offer(x, c).", -1)]},
        {"facts": {"best": [(("a", 7), -2)]}},
    ]
    for step in steps:
        kept.take(kept.reasoner.apply(**step).record)  # type: ignore[arg-type]  # the steps are of its form
        assert kept.present() == kept.scratch(), step
    assert set(kept.present()) == {"offer"}


# ---- symbols


class Chunks:
    """Chunks of symbols, and how often one was read."""

    def __init__(self, *texts: Sequence[str | None]) -> None:
        self.texts, self.reads = texts, 0

    def get(self, names: Sequence[str], /) -> list[bytes]:
        self.reads += len(names)
        return [encode_symbols(self.texts[int(name)]) for name in names]

    @property
    def chunks(self) -> list[SymbolChunk]:
        firsts = [sum(len(t) for t in self.texts[:i]) for i in range(len(self.texts))]
        return [SymbolChunk(str(i), first, len(self.texts[i])) for i, first in enumerate(firsts)]


def test_the_texts_of_old_symbols_are_read_when_they_are_needed_and_only_then() -> None:
    chunks = Chunks(["a", "b"], ["c", None, "e"], ["f"])
    hashes = SymbolHashes(chunks)
    assert chunks.reads == 0
    first = hashes.of([np.array([4, 2], np.int64)], chunks.chunks)[[2, 4]].tolist()
    assert chunks.reads == 1
    assert hashes.of([np.array([2], np.int64)], chunks.chunks)[2].tolist() == first[0]
    assert chunks.reads == 1
    other = SymbolHashes(Nothing())
    other.add(100_000, ["e", "c"])
    assert other.of([np.array([100_001, 100_000], np.int64)], ())[[100_001, 100_000]].tolist() == first


@pytest.mark.parametrize("code", [3, 9, -1])
def test_a_symbol_without_a_text_is_an_error(code: int) -> None:
    chunks = Chunks(["a", "b"], ["c", None, "e"])
    with pytest.raises(CorruptSnapshotError, match="symbol"):
        SymbolHashes(chunks).of([np.array([0, code], np.int64)], chunks.chunks)


def test_growing_keeps_what_is_known() -> None:
    hashes = SymbolHashes(Nothing())
    hashes.add(0, ["a"])
    before = hashes.of([np.zeros(1, np.int64)], ())[0].tolist()
    hashes.add(1_000_000, ["z"])
    assert hashes.of([np.array([0, 1_000_000], np.int64)], ())[0].tolist() == before


# ---- of programs and epochs


def rule(text: str, weight: int = 1) -> RuleInfo:
    return RuleInfo("r", f" {text}", text, weight)


def test_the_digest_of_a_program() -> None:
    a, b = rule("a(x) :- b(x)."), rule("b(x) :- c(x).")
    assert program_digest([a, b], "") == program_digest([b, a], "")
    others = [
        program_digest([a], ""),
        program_digest([a, rule("b(x) :- c(x).", 2)], ""),
        program_digest([a, b], ".decl a(x: symbol)"),
    ]
    assert len({program_digest([a, b], ""), *others}) == 4
    assert epoch_digest(MODULUS - 1, [2, 3]) == 4


def test_the_manifest_has_the_digests_of_what_is_there(
    client: redis.Redis, server: EmbeddedServer, database: str
) -> None:
    published = Published(client, server.url, database)
    assert published.digests() == scratch(published.reasoner)
    data = client.get(Keys(database).manifest(published.publisher.manifest.epoch))
    read = Manifest.decode(data)  # type: ignore[arg-type]  # of a synchronous client
    assert {name: entry.digest for name, entry in read.relations.items()} == scratch(published.reasoner)
    program = program_digest(published.reasoner.rules(), "")
    assert read.digest == epoch_digest(program, scratch(published.reasoner).values())
    before = read.digest
    published.apply(facts={"edge": [(("z", "y"), 1)]})
    assert published.publisher.manifest.digest != before
    published.apply(facts={"edge": [(("z", "y"), -1)]})
    assert published.publisher.manifest.digest == before


def test_a_manifest_of_a_version_without_digests(
    client: redis.Redis, server: EmbeddedServer, database: str
) -> None:
    """It is read, its digests are unknown, and the next writer computes them once from what is stored."""
    published = Published(client, server.url, database)
    right, whole = published.digests(), published.publisher.manifest.digest
    key = Keys(database).manifest(published.publisher.manifest.epoch)
    old = orjson.loads(client.get(key))  # type: ignore[arg-type]  # of a synchronous client
    del old["digest"], old["digests"]
    client.set(key, orjson.dumps(old))
    assert Manifest.decode(orjson.dumps(old)).relations["tc"].digest is None
    published.restart()
    assert (published.digests(), published.publisher.manifest.digest) == (right, whole)
    assert published.audit().differing == 0
    published.apply(facts={"edge": [(("z", "y"), 1)]})
    assert published.digests() == scratch(published.reasoner)


def test_a_relation_that_cannot_be_read_has_no_digest_and_the_engine_starts(
    client: redis.Redis, server: EmbeddedServer, database: str
) -> None:
    published = Published(client, server.url, database)
    keys = Keys(database)
    key = keys.manifest(published.publisher.manifest.epoch)
    old = orjson.loads(client.get(key))  # type: ignore[arg-type]  # of a synchronous client
    del old["digest"], old["digests"]
    client.set(key, orjson.dumps(old))
    relation = published.publisher.store.relation(published.publisher.manifest.relations["tc"].id)
    client.delete(keys.object(published.publisher.store.index(relation.segments[0]).ids[0]))
    again = new_publisher(client, database)
    digests = {name: entry.digest for name, entry in again.manifest.relations.items()}
    assert digests.pop("tc") is None
    assert None not in digests.values()
    assert again.manifest.digest is None


def test_types_that_change_leave_no_trace(client: redis.Redis, server: EmbeddedServer, database: str) -> None:
    """A relation that is emptied and comes back with columns of another type."""
    published = Published(client, server.url, database, filled=False)
    published.apply(facts={"r": [(("a",), 1)]})
    published.apply(facts={"r": [(("a",), -1)]})
    published.apply(facts={"r": [((1,), 2)]})
    assert published.digests() == scratch(published.reasoner)
    assert published.audit().differing == 0
