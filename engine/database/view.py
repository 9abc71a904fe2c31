"""A query that is kept up to date: its answer changes with each epoch's changes, at the cost of these.

In: a prepared query; the tuples that it reads, once (`load`); then what each epoch made appear and go (`apply`). Out:
the answer's rows, and what each epoch changed in them. Always: after each epoch the answer is what `evaluate` would
give over the same tuples; a change that fails leaves the view as it was.

The query's circuit stays in a resident placement, which is brought from epoch to epoch as the engine brings its own.
So a view holds all that the query reads, and not only what is part of an answer at the moment: with the next epoch
anything may become part of it.

Codes of symbols are the view's own. The database gives a string that it has forgotten a new code when it comes back,
and a code to one that the query had computed before; a view that took over the database's codes would take the two for
different strings. A dictionary leads from the database's codes to the view's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.circuit.compile import compile_circuit
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Tuple, decode
from engine.database.query import ANSWER, KEPT_ANSWER, PreparedQuery, execute
from engine.errors import BudgetExceededError
from engine.language.schema import Column, ColumnType
from engine.maintenance.facts import FactArrays
from engine.maintenance.placement import Budget

# What a budget of tuples allows for the texts of symbols, which are not among the tuples.
_BYTES_PER_TUPLE = 100
# Symbols are looked through when so many more, and twice as many, are held as the last time.
_SPARE_SYMBOLS = 50_000


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows that appeared (+1) and went (-1), each once. codes: int64[n, columns]; signs: int8[n]."""

    codes: Codes
    signs: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.codes)


class View:
    """See the module. `before`: the view of the same query before the types of a relation changed; its symbols are
    taken over, and it must not be used any more."""

    def __init__(self, query: PreparedQuery, before: View | None = None) -> None:
        # Imported here, because it loads the compiled kernels.
        from engine.resident.placement import ResidentPlacement

        self.query = query
        self.symbols: SymbolTable = before.symbols if before else SymbolTable()
        self._own: dict[int, int] = before._own if before else {}
        rules = [replace(rule, head=replace(rule.head, relation=KEPT_ANSWER)) for rule in query.rules]
        self._types = {**query.schemas, KEPT_ANSWER: query.schemas[ANSWER]}
        self._circuit = compile_circuit(rules, self._types)
        self._placement = ResidentPlacement(threads=1)
        self._swept = 0
        # Whoever reads codes that were given out: while there are any, no code of a symbol is forgotten.
        self.readers: set[object] = before.readers if before else set()

    # ---- codes of the database

    def unknown(self, relation: str, codes: Codes) -> Codes:
        """The database's codes of those symbols in tuples of a relation whose texts are still to be learned."""
        columns = [codes[:, i] for i in self._texts(relation)]
        found = np.unique(np.concatenate(columns)) if columns else np.empty(0, np.int64)
        return np.array([code for code in found.tolist() if code not in self._own], np.int64)

    def learn(self, codes: Codes, texts: Sequence[str]) -> None:
        """Note the texts of symbols of the database."""
        self._own.update(zip(codes.tolist(), self.symbols.intern_all(texts).tolist(), strict=True))

    def own(self, relation: str, codes: Codes) -> Codes:
        """The tuples in the view's codes; all their symbols are known."""
        translated = np.array(codes, np.int64, order="C")
        for i in self._texts(relation):
            found, places = np.unique(codes[:, i], return_inverse=True)
            mapped = np.array([self._own[code] for code in found.tolist()], np.int64)
            translated[:, i] = mapped[places.reshape(-1)]
        return translated

    def _texts(self, relation: str) -> list[int]:
        columns = self._types[relation].columns
        return [i for i, column in enumerate(columns) if column.type is ColumnType.SYMBOL]

    # ---- the answer

    def load(self, facts: Mapping[str, Sequence[Codes]], budget: Budget) -> None:
        """Evaluate the query the first time. facts: for each relation of `query.reads` arrays, in the view's codes,
        that together hold what is read; a tuple may come more than once.

        Raises:
            BudgetExceededError, EvaluationCancelledError, EvaluationError: as `evaluate` does.
        """
        loaded: dict[str, FactArrays] = {}
        for relation, parts in facts.items():
            codes = np.ascontiguousarray(np.concatenate(parts))
            if len(parts) > 1 and len(codes):
                codes = np.unique(codes, axis=0) if codes.shape[1] else codes[:1]
            if len(codes):
                loaded[relation] = codes, np.ones(len(codes), np.int64)
        self._execute(loaded, budget)
        self._sweep()

    def apply(self, changes: Mapping[str, Delta], budget: Budget) -> Delta:
        """Bring the answer to the next epoch. changes: the tuples of relations, in the view's codes, that it made
        appear and go; of those that no atom asks for, all may be left out or none.

        Raises:
            as `load`; the view is as before then.
        """
        facts = {
            relation: (np.ascontiguousarray(delta.codes), delta.signs.astype(np.int64))
            for relation, delta in changes.items()
            if len(delta)
        }
        if not facts:
            return self._nothing()
        changed = self._execute(facts, budget)
        self._sweep()
        return changed

    def rows(self) -> Codes:
        """The answer, in no particular order."""
        return self._placement.tuples(KEPT_ANSWER, {}, "all")[0]

    def decode(self, codes: Codes) -> list[Tuple]:
        return decode(codes, [column.type for column in self.query.columns], self.symbols)

    def _execute(self, facts: Mapping[str, FactArrays], budget: Budget) -> Delta:
        if budget.tuples is not None and self.symbols.nbytes > _BYTES_PER_TUPLE * budget.tuples:
            raise BudgetExceededError(
                "the texts of the symbols that the query reads need more memory than is allowed; make it more "
                "selective",
                budget="tuples",
            )
        done = execute(self._placement, self._circuit, facts, self.symbols, budget)
        self._placement.commit()
        told = done.relations.get(KEPT_ANSWER)
        if told is None:
            return self._nothing()
        change = told.here()
        seen = change.present != 0
        return Delta(change.codes[seen], change.present[seen])

    def _nothing(self) -> Delta:
        return Delta(np.empty((0, len(self.query.columns)), np.int64), np.empty(0, np.int8))

    def _sweep(self) -> None:
        """Forget symbols that no tuple has any more, now and then."""
        if self.readers or self.symbols.held <= 2 * self._swept + _SPARE_SYMBOLS:
            return
        held = {name: self._texts(name) for name in (*self.query.reads, KEPT_ANSWER)}
        used = self._placement.codes({name: columns for name, columns in held.items() if columns})
        if used is not None:
            gone = set(self.symbols.keep(used, self.query.constants).tolist())
            self._own = {code: own for code, own in self._own.items() if own not in gone}
        self._swept = self.symbols.held


def difference(before: View, after: View) -> tuple[list[Tuple], list[Tuple]]:
    """The rows (inserted, deleted) between the answers of two views."""
    old, new = before.decode(before.rows()), after.decode(after.rows())
    if _types(before.query.columns) != _types(after.query.columns):
        # 1 and 1.0 are equal in Python, and different values.
        return new, old
    olds, news = set(old), set(new)
    return [row for row in new if row not in olds], [row for row in old if row not in news]


def _types(columns: Sequence[Column]) -> list[ColumnType | None]:
    return [column.type for column in columns]
