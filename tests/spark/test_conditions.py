"""What the Spark placement cannot evaluate is refused by its name, before Spark is asked for anything."""

from __future__ import annotations

import pytest

from engine.circuit.circuit import compile_circuit
from engine.errors import UnsupportedFeatureError
from engine.language.check import infer_schemas
from engine.language.parser import parse_program
from engine.language.syntax import fixpoints_of
from engine.spark.conditions import check_supported


@pytest.mark.parametrize("function", ["count", "sum", "mean"])
def test_a_recursive_fold_is_refused_by_name(function: str) -> None:
    text = f"""
        .decl e(x: number, y: number)
        .decl n(x: number, r: {"float" if function == "mean" else "number"}) fixpoint
        n(x, {function}(x)) :- e(x, _).
        n(y, {function}(x)) :- n(x, _), e(x, y).
    """
    program = parse_program(text)
    schemas = infer_schemas(program.declarations, {}, program.rules, {})
    circuit = compile_circuit(program.rules, schemas, fixpoints=fixpoints_of(program.declarations))
    with pytest.raises(UnsupportedFeatureError, match=f"a recursive {function}, which rules of n use"):
        check_supported(circuit)
