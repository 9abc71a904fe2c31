"""What this placement does not evaluate, refused by its name before anything is done."""

from __future__ import annotations

from engine.circuit.circuit import Circuit
from engine.errors import UnsupportedFeatureError

FOLDS = frozenset({"count", "sum", "mean", "min", "max"})


def check_supported(circuit: Circuit) -> None:
    """Refuse a fold that is not evaluated here: one over contributions of its own stratum, or of an unknown function.

    Raises:
        UnsupportedFeatureError: for the first such fold.
    """
    for stratum in circuit.strata:
        for fold in stratum.folds:
            inside = set(fold.sources) & set(stratum.relations)
            if fold.function in FOLDS and not inside:
                continue
            what = f"{fold.function} in recursion" if inside else fold.function
            raise UnsupportedFeatureError(
                f"{what}, which rules of {fold.target.split('@')[0]} use, is not supported yet by the Spark placement; "
                "the resident placement evaluates it",
                feature=fold.function,
            )
