"""Bulk jobs on a page: one that is followed with its progress, and the list of the newest."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from nicegui import ui

from service.console.here import Here
from service.console.timeline import clock
from service.job_words import STAGES

Json = dict[str, Any]
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
_COLOURS: Final = {"succeeded": "positive", "failed": "negative", "cancelled": "secondary"}
_POLL_SECONDS: Final = 0.5
_LISTED: Final = 30


async def follow(here: Here, job: Json) -> Json:
    """Show a job's progress until it has ended; its last state. It goes on if the person leaves the page."""
    with ui.column().classes("w-full gap-1") as box:
        told = ui.label(words(job)).props("aria-live=polite")
        bar = ui.linear_progress(0, show_value=False).props("instant-feedback")
        cancel = ui.button("Cancel", icon="cancel", on_click=lambda: stop(here, job["job"])).props("flat")
    while job["status"] not in ENDED and not here.tab.is_deleted:
        stage = job["stages"][-1] if job["stages"] else None
        told.set_text(words(job))
        bar.set_value(0 if stage is None else stage["fraction"])
        await asyncio.sleep(_POLL_SECONDS)
        job = await here.client.request("GET", f"/v1/jobs/{job['job']}")
    if not here.tab.is_deleted:
        told.set_text(words(job))
        cancel.delete()
        bar.delete()
        with box:
            _outcome(job)
    return job


async def stop(here: Here, job: str) -> None:
    """Cancel a job."""
    with here.telling():
        await here.client.request("DELETE", f"/v1/jobs/{job}")
        ui.notify("The job is being cancelled.")


def words(job: Json) -> str:
    """A job and its state in a line."""
    request = job["request"]
    about = request.get("relation") or request.get("query") or ""
    if job["kind"] == "import":
        name = ", ".join(path.rpartition("/")[2] for path in request["paths"])
        into = f" into {about}" if about else ""
        what = f"{'dry run of an ' if request.get('dry_run') else ''}import of {name}{into}"
    elif job["kind"] == "export":
        what = f"export of {about} to {request['path']}"
    else:
        what = "restore of a backup"
    state = str(job["status"])
    if job["cancelling"] and state not in ENDED:
        state = "being cancelled"
    elif state == "running" and job["stages"]:
        stage = job["stages"][-1]
        state = f"{STAGES.get(stage['name'], stage['name'])}, {stage['fraction']:.0%}"
    return f"{what}: {state}"


def _outcome(job: Json) -> None:
    """What a job that has ended did, or why it did not."""
    result, problem = job["result"], job["problem"]
    if problem is not None:
        ui.label(f"{problem['code']}: {problem['detail']}").classes("text-negative").style(
            "overflow-wrap: anywhere"
        )
        _samples(problem)
    if result is None:
        return
    if job["kind"] == "export":
        ui.label(f"Written to {result['path']}, in {result['seconds']:.1f} s.").classes("break-all")
        return
    if job["kind"] == "import":
        good = result["rows"] - result["rejected"]
        would = "would be" if job["request"].get("dry_run") else "were"
        ui.label(
            f"{good:,} rows {would} imported, {result['tuples']:,} distinct tuples, in {result['seconds']:.1f} s."
        )
        for relation, change in sorted(result["changes"].items()):
            ui.label(f"{relation}: +{change['inserted']:,} -{change['deleted']:,}")
        if result["epoch"] is not None and not result["changes"]:
            ui.label("No relation changed.")
        if result["rejected"]:
            ui.label(
                f"{result['rejected']:,} rows were left out; all of them are in {result['rejects']}."
            ).classes("text-bold break-all")
            _samples(result)


def _samples(found: Json) -> None:
    for sample in found.get("samples") or ():
        place = f"line {sample['line']}" if "line" in sample else f"row {sample['row']}"
        ui.label(f"{place}: {sample['reason']}").classes("font-mono text-caption").style(
            "overflow-wrap: anywhere"
        )


class JobList:
    """The newest jobs; looked at again while one of them runs."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._shown: list[Json] | None = None
        self._box = ui.column().classes("w-full gap-1")
        self._timer = ui.timer(2.0, self.load, active=False, immediate=False)

    async def load(self) -> None:
        """Ask for the jobs, and show what has changed."""
        with self._here.telling():
            found = (await self._here.client.request("GET", "/v1/jobs", params={"limit": _LISTED}))["jobs"]
            self._timer.active = any(job["status"] not in ENDED for job in found)
            if found == self._shown:
                return
            self._shown = found
            self._box.clear()
            with self._box:
                if not found:
                    ui.label("There are no jobs yet.")
                for job in found:
                    self._row(job)

    def _row(self, job: Json) -> None:
        running = job["status"] not in ENDED
        when = clock(job["created"])
        with ui.expansion().classes("w-full").props("dense") as row:
            with row.add_slot("header"), ui.row().classes("w-full items-center gap-2"):
                ui.badge(job["status"], color=_COLOURS.get(job["status"], "primary"))
                ui.label(words(job)).classes("grow").style("overflow-wrap: anywhere; flex-basis: 12rem")
                ui.label(when).classes("text-caption")
            for stage in job["stages"]:
                ui.label(f"{STAGES.get(stage['name'], stage['name'])}: {stage['seconds']:.1f} s").classes(
                    "text-caption"
                )
            _outcome(job)
            if running and self._here.person.has("writer"):
                ui.button("Cancel", icon="cancel", on_click=lambda: stop(self._here, job["job"])).props(
                    "outline"
                )
