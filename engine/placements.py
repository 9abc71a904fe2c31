"""The placements by name. Spark's packages are imported only when a Spark placement is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import InvalidRequestError
from engine.placement import Placement
from engine.resident.placement import ResidentPlacement

if TYPE_CHECKING:
    from engine.spark.session import SparkOptions, SparkSource

NAMES = ("auto", "resident", "spark")


def make_placement(
    name: str, threads: int | None = None, spark: SparkSource | SparkOptions | None = None
) -> Placement:
    """A placement that holds nothing yet.

    name: `auto` (resident), `resident` or `spark`. threads: of the resident one. spark: how the other gets its
    session; by default a local one, started with the first epoch.

    Raises:
        InvalidRequestError: there is no such placement.
    """
    if name not in NAMES:
        raise InvalidRequestError(f"placement must be one of {', '.join(NAMES)}, not {name!r}")
    if name != "spark":
        return ResidentPlacement(threads)
    from engine.spark.placement import SparkPlacement

    return SparkPlacement(spark)
