"""The evaluations of four papers, with Zedlog beside the peers of this machine; writes docs/papers.md and its plots.

    python -m benchmarks.papers [PART ...] [--sizes default] [--runs N] [--data FOLDER] [--peer NAME=COMMAND] [--fresh]

PART: lubm (papers 000 and 001), dyre (002), aggregates (003), elastic (004); without any, all of them. What was
measured before in the same way (sizes, runs, strategies, peers) is kept, so that an interrupted run goes on where it
stopped, and the page always shows every part that was ever measured. `--sizes large` is what the papers ran, and takes
hours; the default sizes take about 20 minutes on two free cores, the small ones some minutes. Data that is not there
is named, or replaced by a generated graph of the same shape where that is possible.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from benchmarks.engine import DATA
from benchmarks.papers import aggregates, dyre, elastic, lubm, page
from benchmarks.papers.data import MissingData
from benchmarks.papers.sections import SIZES, Kept, Settings, in_words, key, measured
from benchmarks.peers import build
from engine.resident.warm import load_all

ROOT = Path(__file__).resolve().parents[2]
PARTS: Mapping[str, ModuleType] = {"lubm": lubm, "dyre": dyre, "aggregates": aggregates, "elastic": elastic}
MINUTES = "20 minutes on two free cores"


def kept(results: Path, part: str) -> Kept:
    return Kept(results / f"papers-{part}.json")


def measure(part: str, settings: Settings, results: Path, fresh: bool) -> None:
    """Measure the sections of a part that are not kept yet; each is kept as soon as it is measured."""
    file, how = kept(results, part), key(settings)
    found = {} if fresh else file.sections(how)
    absent: dict[str, str] = {}
    for name, work in PARTS[part].SECTIONS.items():
        if name in found:
            print(f"{part}: {name}: kept from before", flush=True)
            continue
        print(f"{part}: {name} ...", flush=True)
        began = time.perf_counter()
        try:
            found[name] = measured(work, settings)
        except MissingData as error:
            absent[name] = str(error)
            print(f"{part}: {name}: left out. {error}", flush=True)
        else:
            print(f"{part}: {name}: done in {in_words(time.perf_counter() - began)}", flush=True)
        file.keep(how, found, absent)


def absent(part: str, file: Kept) -> list[str]:
    """Why sections of the part are not on the page."""
    sections, known = file.sections(), file.absent()
    return [
        f"{name}: {known.get(name, f'not measured; `make papers PARTS={part}` measures it.')}"
        for name in PARTS[part].SECTIONS
        if name not in sections
    ]


def write(path: Path, results: Path) -> None:
    parts = {}
    for part, module in PARTS.items():
        file = kept(results, part)
        parts[part] = module.TITLE, module.PAPER, file.sections(), absent(part, file)
    page.write(path, parts, MINUTES)
    print(f"Written: {path}")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.papers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--sizes", choices=SIZES, default="default", help="how much data (default: default)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each figure, at least 3 (default 3)")
    parser.add_argument(
        "--data", type=Path, default=DATA, help=f"the public data sets (default {DATA.name}/)"
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results", help="where JSON is kept"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "papers.md", help="the page to write")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a further peer (benchmarks/papers/peers.py)",
    )
    parser.add_argument("--no-peers", action="store_true", help="do not build the peers that cargo builds")
    parser.add_argument("--fresh", action="store_true", help="measure again what is kept")
    parser.add_argument("--page-only", action="store_true", help="only write the page from what is kept")
    chosen = parser.parse_args(arguments)
    for part in chosen.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; the parts are {', '.join(PARTS)}")
    if chosen.runs < 3:
        parser.error(f"--runs must be at least 3, not {chosen.runs}")
    for peer in chosen.peer:
        if not all(peer.partition("=")[::2]):
            parser.error(f"--peer must be NAME=COMMAND, not {peer!r}")
    return chosen


def command(chosen: argparse.Namespace) -> str:
    """What makes the same figures again."""
    words = ["make papers"]
    words += [f"SIZES={chosen.sizes}"] if chosen.sizes != "default" else []
    words += [f'PAPERS="--runs {chosen.runs}"'] if chosen.runs != 3 else []
    return " ".join(words)


def main(arguments: Sequence[str]) -> None:
    chosen = options(arguments)
    if not chosen.page_only:
        settings = Settings(
            chosen.sizes,
            chosen.runs,
            chosen.data,
            None if chosen.no_peers else build(),
            dict(peer.split("=", 1) for peer in chosen.peer),
            command(chosen),
        )
        began = time.perf_counter()
        # Nobody's first run loads kernels.
        load_all()
        for part in chosen.parts or PARTS:
            measure(part, settings, chosen.results, chosen.fresh)
        print(f"All in all {in_words(time.perf_counter() - began)}.")
    write(chosen.page, chosen.results)


if __name__ == "__main__":
    main(sys.argv[1:])
