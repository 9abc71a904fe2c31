"""Other engines on the same programs and facts as Zedlog, as far as this machine has them.

- Differential dataflow, ascent and datafrog are built by cargo from benchmarks/peers/ (benchmarks/peers.py).
- Souffle is used where `souffle` is on the path: its interpreter, one thread; its time is that of the whole process,
  which also reads the facts.
- Any other engine, such as DYRE or pydbsp, takes part by `--peer NAME=COMMAND`. The command is called as the built
  peers are, `COMMAND PROGRAM FOLDER [CHANGES PARTS]`, and answers one line of JSON (benchmarks/peers/src/main.rs).
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.papers.sections import WALL, Row, Section, Settings
from benchmarks.peers import CHANGES, PARTS, WHAT, Seconds, Workload, contestants, in_turns
from engine.language.parser import parse_program

PATIENCE = 300
"""Seconds that a run of a peer that we did not build may take."""
ON_REQUEST = {"dyre": "DYRE", "pydbsp": "pydbsp"}
"""The papers' own systems, which the project cannot build: option -> name."""


def compared(title: str, workloads: Sequence[tuple[str, Workload]], settings: Settings) -> Section:
    """A row for each workload, and for the changes of those that have any."""
    left_out: list[str] = []
    if settings.program is None:
        left_out.append(
            "Differential dataflow, ascent, datafrog: their programs are not built (cargo is needed)."
        )
    souffle = shutil.which("souffle")
    if souffle is None:
        left_out.append("Souffle: there is no `souffle` on the path.")
    for name, title_of in ON_REQUEST.items():
        if name not in settings.peers:
            left_out.append(f"{title_of}: no command was given for it (`--peer {name}=COMMAND`).")
    rows: list[Row] = []
    for name, workload in workloads:
        with tempfile.TemporaryDirectory() as folder:
            taking_part = contestants(workload, settings.program, Path(folder))
            if souffle is not None:
                taking_part["souffle"] = partial(by_souffle, souffle, workload, Path(folder))
            for peer, command in settings.peers.items():
                taking_part[peer] = partial(by_command, peer, command, workload, Path(folder))
            slow: list[str] = []
            found = in_turns(name, taking_part, workload.changes, settings.runs, slow)
        left_out += [f"{name}: {peer} did not end within {PATIENCE:,} seconds." for peer in slow]
        rows += [Row(name + WHAT[what], all) for what, all in found.items()]
    return Section(
        title,
        "Zedlog with one thread and with two, and each peer with one: from facts in memory to the whole result, and "
        "where facts change, a hundred times one fact away and back, and five times 1 % of all. A batch engine has no "
        "time for a change: it would compute everything again. All results have the same number of tuples.",
        WALL,
        rows,
        meaning(rows),
        left_out=left_out,
    )


def meaning(rows: Sequence[Row]) -> str:
    """Against the fastest peer of each row: computing everything, and changes."""
    sentences = []
    for what, changes in (("Computing everything", False), ("A change", True)):
        ratios = {}
        for row in rows:
            others = [name for name in row.seconds if not name.startswith("Zedlog")]
            if others and changes == any(end and row.name.endswith(end) for end in WHAT.values()):
                ratios[row.name] = row.median("Zedlog") / row.median(row.fastest(others))
        if ratios:
            least, most = (choose(ratios, key=lambda name: ratios[name]) for choose in (min, max))
            told = f"{ratios[least]:,.3g} times"
            if least != most:
                told += f" ({least}) to {ratios[most]:,.3g} times ({most})"
            sentences.append(
                f"{what} takes Zedlog with one thread {told} as long as the fastest peer that can do it."
            )
    return " ".join(sentences) or "There is no peer on this machine, so this table has Zedlog alone."


def by_command(
    peer: str, command: str, workload: Workload, folder: Path, changes: bool
) -> tuple[int, Seconds]:
    """As `benchmarks.peers.theirs`, by a command of the user's."""
    more = [str(CHANGES), str(PARTS)] if changes else []
    done = subprocess.run(
        [*shlex.split(command), workload.program, str(folder), *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if done.returncode:
        raise SystemExit(f"{peer} failed at {workload.program} ({command}): {done.stderr}")
    told = json.loads(done.stdout)
    return told.pop("tuples"), told


def by_souffle(program: str, workload: Workload, folder: Path, changes: bool) -> tuple[int, Seconds]:
    """Everything from nothing by Souffle's interpreter; it has no changes."""
    path = folder / "program.dl"
    path.write_text(souffle_text(workload))
    start = time.perf_counter()
    done = subprocess.run(
        [program, "-w", "-F", folder, path], capture_output=True, text=True, timeout=PATIENCE
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"souffle failed at {workload.program}: {done.stderr}")
    sizes = (line.split("\t") for line in done.stdout.splitlines())
    return sum(int(size) for _, size in sizes), {"bootstrap": [seconds]}


def souffle_text(workload: Workload) -> str:
    """The program, which reads the facts as the peers do and puts out the size of the result."""
    rules = parse_program("\n".join(workload.rules)).rules
    arities = {rule.head.relation: rule.head.arity for rule in rules}
    arities |= {relation: rows.shape[1] for relation, rows in workload.facts.items()}
    declared = [
        f".decl {name}({', '.join(f'c{i}: number' for i in range(arity))})" for name, arity in arities.items()
    ]
    inputs = [f'.input {name}(filename="{name}", delimiter=" ")' for name in workload.facts]
    counted = [workload.head] if workload.head else list(arities)
    return (
        "\n".join([*declared, *inputs, *workload.rules, *(f".printsize {name}" for name in counted)]) + "\n"
    )
