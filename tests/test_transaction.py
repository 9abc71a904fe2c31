"""Transactions as they come from clients and as the log keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine import errors as e
from engine.data.transaction import Transaction

FACT = {"relation": "r", "tuples": [["a", 1, 1.5, True]], "weight": -2}


def test_the_log_gives_back_what_went_in():
    transaction = Transaction.parse(
        [FACT], [{"rule": "p(x) :- r(x, _, _, _).", "weight": 3}], ".decl d(x: number)", "set", True, True
    )
    assert Transaction.decode(transaction.encode()) == transaction
    asking = Transaction.parse([FACT], strategy="bootstrap", placement="spark")
    assert Transaction.decode(asking.encode()) == asking


def test_what_is_not_asked_for_does_not_change_the_log():
    """An Idempotency-Key goes by the bytes: those of an older version must stay the same."""
    assert set(json.loads(Transaction.parse([FACT]).encode())) == {
        "facts",
        "rules",
        "declarations",
        "mode",
        "dry_run",
        "return_delta",
    }


@pytest.mark.parametrize("field", ["strategy", "placement"])
def test_how_to_evaluate_is_one_of_the_known_ways(field: str):
    with pytest.raises(e.InvalidRequestError, match=f'{field} must be one of auto, .*, not "fast"'):
        Transaction.parse([FACT], **{field: "fast"})


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("not an object", e.InvalidRequestError),
        ({"tuples": []}, e.InvalidRequestError),
        ({"relation": 7, "tuples": []}, e.InvalidRequestError),
        ({"relation": "r", "tuples": "abc"}, e.InvalidRequestError),
        ({"relation": "r", "tuples": ["abc"]}, e.InvalidRequestError),
        ({"relation": "r", "tuples": [[None]]}, e.InvalidValueError),
        ({"relation": "r", "tuples": [[[1]]]}, e.InvalidValueError),
        ({"relation": "r", "tuples": [[2**63]]}, e.InvalidValueError),
        ({"relation": "r", "tuples": [], "weight": 0}, e.InvalidWeightError),
        ({"relation": "r", "tuples": [], "weight": True}, e.InvalidWeightError),
        ({"relation": "r", "tuples": [], "weight": 1.0}, e.InvalidWeightError),
        ({"relation": "r", "tuples": [], "weight": 2**63}, e.InvalidWeightError),
    ],
)
def test_what_is_no_fact_change_is_refused(entry: Any, error: type[e.ZedlogError]):
    with pytest.raises(error) as refused:
        Transaction.parse(facts=[entry])
    assert "facts[0]" in str(refused.value)


@pytest.mark.parametrize(
    "entry", ["p(x) :- q(x).", {}, {"rule": 5}, {"rule": "p(x) :- q(x).", "weight": "1"}]
)
def test_what_is_no_rule_change_is_refused(entry: Any):
    with pytest.raises(e.InvalidRequestError):
        Transaction.parse(rules=[entry])


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"null", b'{"facts": 1}', b'{"facts": ["x"]}', b'{"unknown": 1}', b"\xff\x00"]
)
def test_a_damaged_log_entry_is_a_typed_error(payload: bytes):
    with pytest.raises(e.CorruptLogError):
        Transaction.decode(payload)
