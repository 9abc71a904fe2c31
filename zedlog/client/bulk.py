"""Files in and out: imports, exports, the jobs that do them, backups."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zedlog.client.connection import Connection, given, new_key
from zedlog.client.errors import Json, error_of
from zedlog.client.models import Job

Progress = Callable[[str, float | None], None]
"""Is told what is being done, and which part of it is done (from 0 to 1; None where that is not known)."""
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_PORTION = 1 << 20
_POLL_SECONDS = 0.3


class Bulk(Connection):
    async def upload_file(
        self, path: str | os.PathLike[str], *, name: str | None = None, progress: Progress | None = None
    ) -> str:
        """Send a file of this machine; the `uploaded` of an import."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", name or Path(path).name).lstrip(".-")[-100:]
        sent = await self.upload("/v1/uploads", name or "file", portions(Path(path), "sending", progress))
        return str(sent["upload"])

    async def import_files(
        self,
        /,
        paths: Files = (),
        *,
        relation: str | None = None,
        upload: bool = False,
        uploaded: str | None = None,
        wait: bool = True,
        progress: Progress | None = None,
        key: str | None = None,
        **fields: Any,
    ) -> Job:
        """Import files as one transaction: one epoch, or nothing.

        paths: files or folders below the engine's import root, or URLs; with `upload` one file of this machine, which
        is sent first. fields: the others of `POST /v1/imports`: format, columns, types, header, delimiter, weight,
        mode, on_error, dry_run, message, source. wait: until the job has ended. progress: is told of stages and how
        much of each is done.

        Raises:
            ServiceError: the job failed; nothing was imported. `problem` has the `samples` of bad rows.
        """
        files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if upload:
            if len(files) != 1:
                raise ValueError(f"one file can be sent at a time, not {len(files)}")
            uploaded = await self.upload_file(files[0], progress=progress)
        about = {"upload": uploaded, "paths": None if uploaded else [os.fspath(file) for file in files]}
        return await self._job("/v1/imports", {"relation": relation, **about, **fields}, key, wait, progress)

    async def export(
        self,
        /,
        path: str,
        *,
        relation: str | None = None,
        query: str | None = None,
        wait: bool = True,
        progress: Progress | None = None,
        key: str | None = None,
        **fields: Any,
    ) -> Job:
        """Export a relation, or the answer of a query, at one epoch to files below the engine's export root. fields:
        the others of `POST /v1/exports`: format, domain, weights, epoch, header, types, overwrite.

        Raises:
            ServiceError: the job failed; it left nothing behind.
        """
        body = {"path": path, "relation": relation, "query": query, **fields}
        return await self._job("/v1/exports", body, key, wait, progress)

    async def _job(
        self, path: str, body: Json, key: str | None, wait: bool, progress: Progress | None
    ) -> Job:
        job = Job.model_validate(await self.post(path, given(body), key=key or new_key()))
        return await self.wait(job, progress=progress) if wait else job

    async def wait(self, job: Job | str, *, progress: Progress | None = None) -> Job:
        """Wait until a job has ended.

        Raises:
            ServiceError: it failed, or was cancelled.
        """
        found = await self.job(job)
        while not found.ended:
            _tell(found, progress)
            await self.driver.sleep(_POLL_SECONDS)
            found = await self.job(found)
        _tell(found, progress)
        if found.problem is not None:
            raise error_of(found.problem.status, found.problem.model_dump())
        return found

    async def job(self, job: Job | str) -> Job:
        """A job as it is now."""
        return Job.model_validate(await self.get(f"/v1/jobs/{_id(job)}"))

    async def jobs(self, limit: int = 20) -> list[Job]:
        """The newest jobs."""
        return [Job.model_validate(one) for one in (await self.get("/v1/jobs", limit=limit))["jobs"]]

    async def cancel_job(self, job: Job | str) -> Job:
        """Cancel a job; it leaves nothing behind."""
        return Job.model_validate(await self.delete(f"/v1/jobs/{_id(job)}"))

    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        as_of: int | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> Path:
        """Back up one epoch into a file of this machine, which is there when all of it is.

        Raises:
            FileExistsError: there is a file of that name, and `overwrite` is not given.
        """
        target = Path(path)
        if target.exists() and not overwrite:
            raise FileExistsError(f"{target} exists; overwrite=True replaces it")
        partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
        try:
            with partial.open("wb") as file:
                async for portion in self.download("/v1/backup", as_of=as_of):
                    file.write(portion)
                    if progress is not None:
                        progress(f"backing up: {file.tell():,} bytes", None)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return target

    async def restore(
        self, path: str | os.PathLike[str], *, wait: bool = True, progress: Progress | None = None
    ) -> Job:
        """Restore a backup into an empty database, as one epoch. The job's `result["differences"]` says which relations
        do not hold what the backup says."""
        sent = await self.upload("/v1/restore", None, portions(Path(path), "sending", progress))
        job = Job.model_validate(sent)
        return await self.wait(job, progress=progress) if wait else job


def portions(path: Path, doing: str, progress: Progress | None) -> Iterable[bytes]:
    """A file, portion by portion."""

    def read() -> Iterator[bytes]:
        size, done = path.stat().st_size, 0
        with path.open("rb") as file:
            while portion := file.read(_PORTION):
                done += len(portion)
                if progress is not None:
                    progress(doing, done / size)
                yield portion

    return read()


def _id(job: Job | str) -> str:
    return job if isinstance(job, str) else job.job


def _tell(job: Job, progress: Progress | None) -> None:
    if progress is not None:
        last = job.stages[-1] if job.stages else None
        progress(
            "waiting for its turn" if last is None else last.name, 0.0 if last is None else last.fraction
        )
