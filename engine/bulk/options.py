"""The engine's command line options for bulk jobs, with what the environment says where they are left out."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from engine.bulk.runner import JobOptions
from engine.bulk.sources import Places


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Where bulk imports and exports may read and write. The environment says what the command line does not."""
    environment = os.environ
    batches = environment.get("ZEDLOG_BATCH_DIR") or os.path.join(
        environment.get("ZEDLOG_DATA_DIR") or ".zedlog", "batches"
    )
    places: list[tuple[str, str | None, str]] = [
        ("import-root", environment.get("ZEDLOG_IMPORT_ROOT"), "imports read files below this folder only"),
        ("export-root", environment.get("ZEDLOG_EXPORT_ROOT"), "exports write below this folder only"),
        ("batch-dir", batches, "where imports keep their facts until they are applied"),
    ]
    for name, default, what in places:
        usual = "%(default)s" if default else "none: switched off"
        parser.add_argument(
            f"--{name}", type=Path, default=default or None, help=f"{what} (default: {usual})"
        )
    schemes = [scheme for scheme in environment.get("ZEDLOG_BULK_SCHEMES", "").split(",") if scheme]
    parser.add_argument(
        "--bulk-scheme",
        action="append",
        default=schemes,
        metavar="SCHEME",
        help="a file system of Spark that imports and exports may use too, such as s3a or hdfs; may be repeated",
    )


def job_options(parsed: argparse.Namespace) -> JobOptions:
    """What the parsed options come to."""
    schemes = frozenset(scheme.lower().removesuffix(":") for scheme in parsed.bulk_scheme)
    places = Places(parsed.import_root, parsed.export_root, None, schemes)
    return JobOptions(Path(parsed.batch_dir).absolute(), places)
