"""`zedlog jobs`: the bulk jobs; and waiting for one, with a progress bar, as `import` and `export` do.

The first Ctrl-C cancels the job, a second one stops waiting for it.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from engine.bulk.outside import OFFSETS
from service.cli import options
from service.cli.client import Json, Refused, ServiceClient
from service.cli.output import err, fail, note, out
from service.job_words import STAGES

_POLL_SECONDS = 0.2
_PLACES = ("partition", "offset", "line", "row", "column")
_RATED_ROWS = 10_000
"""The fewest rows for which a rate is meaningful."""

jobs_app = typer.Typer(no_args_is_help=True, help="Bulk imports and exports: list, watch, cancel.")


@jobs_app.command("list")
def list_jobs(
    url: options.Url = options.URL,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")] = 20,
) -> None:
    """List the jobs, the newest first."""
    with ServiceClient(url) as client:
        jobs = client.get("/v1/jobs", limit=limit)["jobs"]
    table = Table(header_style="bold")
    for column in ("job", "what", "state", "submitted", "took"):
        table.add_column(column, no_wrap=column != "what")
    for job in jobs:
        created = datetime.fromtimestamp(job["created"]).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(job["job"], escape(what(job)), state(job), created, took(job))
    out.print(table)


@jobs_app.command()
def show(job: Annotated[str, typer.Argument(help="The job's id.")], url: options.Url = options.URL) -> None:
    """Show one job: its stages, and its outcome."""
    with ServiceClient(url) as client:
        found = client.get(f"/v1/jobs/{job}")
    out.print(f"[bold]{escape(found['job'])}[/] {escape(what(found))}: {state(found)}")
    for stage in found["stages"]:
        name = STAGES.get(stage["name"], stage["name"])
        out.print(f"  {name}: {stage['fraction']:.0%}, {seconds(stage['seconds'])}")
    report(found)


@jobs_app.command()
def wait(job: Annotated[str, typer.Argument(help="The job's id.")], url: options.Url = options.URL) -> None:
    """Wait for a job to end, with a progress bar."""
    with ServiceClient(url) as client:
        report(follow(client, client.get(f"/v1/jobs/{job}")))


@jobs_app.command()
def cancel(job: Annotated[str, typer.Argument(help="The job's id.")], url: options.Url = options.URL) -> None:
    """Cancel a job; it leaves nothing behind."""
    with ServiceClient(url) as client:
        found = follow(client, client.delete(f"/v1/jobs/{job}"))
    out.print(f"{escape(found['job'])}: {state(found)}")


def follow(client: ServiceClient, job: Json) -> Json:
    """Wait for the job to end; returns its final state.

    Raises:
        KeyboardInterrupt: interrupted twice; the job goes on.
    """
    cancelled = False
    while True:
        try:
            return _follow(client, job)
        except KeyboardInterrupt:
            if cancelled:
                note(f"[yellow]the job {job['job']} goes on; 'zedlog jobs wait {job['job']}' waits for it[/]")
                raise
            cancelled = True
            note("[yellow]cancelling the job; Ctrl-C once more stops waiting for that[/]")
            try:
                client.delete(job["status_url"])
            except Refused as refusal:
                note(f"[yellow]{escape(str(refusal))}[/]")


def _follow(client: ServiceClient, job: Json) -> Json:
    with _progress() as progress:
        task = progress.add_task(_stage_name(job), total=1.0)
        while job["status"] in ("queued", "running"):
            stages = job["stages"]
            done = stages[-1]["fraction"] if stages else 0.0
            progress.update(task, description=_stage_name(job), completed=done)
            time.sleep(_POLL_SECONDS)
            job = client.get(job["status_url"])
        progress.update(task, completed=1.0)
    return job


def _progress() -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        # Where standard error is no terminal, the closing line says all there is to say.
        disable=not err.is_terminal,
    )


def _stage_name(job: Json) -> str:
    if not job["stages"]:
        return "waiting for its turn"
    name = job["stages"][-1]["name"]
    return STAGES.get(name, str(name))


def report(job: Json) -> None:
    """Print the outcome of a job that has ended.

    Raises:
        Refused: it failed or was cancelled.
    """
    if job["problem"] is not None:
        _show_bad_rows(job["problem"])
        raise Refused(int(job["problem"]["status"]), job["problem"])
    result = job["result"]
    if result is None:
        return
    if job["kind"] == "restore":
        _report_restore(job)
        return
    if job["kind"] == "export":
        files = f", {result['files']:,} file{'s' * (result['files'] != 1)}, {size(result['bytes'])}"
        out.print(
            f"exported {_counted(result['rows'], 'tuple')} of epoch {result['epoch']} to "
            f"[bold]{escape(result['path'])}[/] in {seconds(result['seconds'])}{files if result['files'] else ''}"
        )
        if result.get("left_out"):
            note(
                f"[yellow]{_counted(result['left_out'], 'generalised triple')} left out, which RDF cannot "
                "represent (for example with a literal as the subject); --strict refuses them[/]"
            )
        return
    good = _counted(result["rows"] - result["rejected"], "row")
    head = "would import" if job["request"].get("dry_run") else "imported"
    if "stream" in result:
        stream = result["stream"]
        note(
            f"{escape(stream['topic'])}: {_counted(stream['messages'], 'message')} read, {stream['lag']:,} not yet; "
            f"the position is kept in {OFFSETS} as the stream {escape(stream['stream'])}"
        )
    epoch = f", epoch {result['epoch']}" if result["epoch"] is not None else ", nothing to apply"
    out.print(
        f"{head} {good}, {_counted(result['tuples'], 'distinct tuple')}, in {seconds(result['seconds'])}"
        f"{_rate(job)}{epoch}"
    )
    if result["epoch"] is not None and not result["changes"]:
        out.print("  no relation changed")
    for relation, change in sorted(result["changes"].items()):
        out.print(f"  {escape(relation)}: +{change['inserted']:,} -{change['deleted']:,}")
    if "rules" in result:
        _report_rules(job)
    if result["rejected"]:
        note(
            f"[yellow]{_counted(result['rejected'], 'row')} left out; "
            f"they are listed in {escape(str(result['rejects']))}[/]"
        )
        _show_bad_rows(result)


def _report_rules(job: Json) -> None:
    """Print which rules an import added or removed."""
    rules = job["result"]["rules"]
    done = "added" if job["request"].get("weight", 1) > 0 else "removed"
    if job["request"].get("dry_run"):
        done = f"would be {done}"
    facts = f" and {_counted(rules['facts'], 'fact')}" if rules["facts"] else ""
    out.print(f"  {_counted(rules['number'], 'rule')}{facts} of {escape(rules['set'])} {done}")
    if rules.get("not_covered"):
        note(
            f"[yellow]{_counted(rules['not_covered'], 'axiom')} without rules[/], for example: "
            f"{escape(rules['for_example'][0])}"
        )


def _report_restore(job: Json) -> None:
    """Print what a restore did."""
    result = job["result"]
    origin = result["backup"]
    out.print(
        f"restored epoch {origin['epoch']} of {escape(origin['database'])} in {seconds(result['seconds'])}: "
        f"{_counted(result['facts'], 'fact')}, {_counted(result['rules'], 'rule')}, as epoch [bold]{result['epoch']}[/]"
    )
    if not result["compared"]:
        note(
            "[yellow]the database has changed since, so its derived tuples were not compared with the backup[/]"
        )
    elif not result["differences"]:
        out.print(
            f"  all {_counted(result['relations'], 'relation')} hold what the backup says, derived tuples included"
            + (f"; sources that assert what they did: {result['sources']}" if result.get("sources") else "")
        )
    for one in result["differences"]:
        said, now = _numbers(one["backup"]), _numbers(one["now"])
        of = f" of the source {one['source']}" if "source" in one else ""
        fail(f"{one['relation']}{of} differs: the backup says {said}, now there are {now}")


def _numbers(tuples: Json) -> str:
    return f"{tuples['all']:,} tuples, {tuples['asserted']:,} asserted, {tuples['derived']:,} derived"


def _rate(job: Json) -> str:
    """How much of the time Spark took to start, and how fast the rows came in afterwards; no rate for so few rows that
    it would only show how long queries take to start."""
    result = job["result"]
    start = sum(stage["seconds"] for stage in job["stages"] if stage["name"] == "spark")
    took = result["seconds"] - start
    after = f", {seconds(start)} of them Spark's start" if start >= 1 else ""
    said = result["rows"] >= _RATED_ROWS and took > 0
    return f"{after} ({result['rows'] / took:,.0f} rows/s)" if said else after


def _show_bad_rows(found: Json) -> None:
    for sample in found.get("samples") or ():
        known = [f"{name} {sample[name]}" for name in _PLACES if name in sample]
        place = escape(", ".join([str(sample["file"]), *known]))
        note(f"  [dim]{place}:[/] {escape(str(sample['reason']))}")


def what(job: Json) -> str:
    """A job in a few words."""
    request = job["request"]
    if job["kind"] == "import":
        return f"import {', '.join(request['paths'])} into {request.get('relation') or 'its relations'}"
    if job["kind"] == "restore":
        return f"restore a backup of {size(request['bytes'])}"
    return f"export {request.get('relation') or request.get('query')} to {request['path']}"


def state(job: Json) -> str:
    return "cancelling" if job["cancelling"] else str(job["status"])


def took(job: Json) -> str:
    if job["started"] is None or job["finished"] is None:
        return ""
    return seconds(job["finished"] - job["started"])


def seconds(value: float) -> str:
    """A duration in plain words."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size(value: int) -> str:
    """A number of bytes in plain words."""
    amount, unit = float(value), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


def _counted(number: Any, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"
