"""What the system is doing: the circuit, the epochs, liveness, readiness, metrics, and the meaning of error codes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import RedirectResponse, Response

from engine.errors import EngineUnavailableError, StorageUnavailableError, ZedlogError, shown
from engine.storage.client import EngineStatus
from service.access.rights import visible_epoch
from service.access.roles import needs
from service.audits import last_documents
from service.circuit import circuit_json, circuit_mermaid
from service.context import Service, service_of
from service.describe import READ_ERRORS, problems, summary
from service.formats import JSON, answers_json, json_response, negotiate
from service.models import Epochs, Health, ProblemType, Readiness
from service.parameters import AsOf, AtLeast, only_known_parameters
from service.principal import Principal, principal_of
from service.problems import STATUS, InvalidParameterError, NotAcceptableError, NotFoundError, title_of
from service.reading import pin

router = APIRouter(tags=["insight"], dependencies=[Depends(only_known_parameters)])

MERMAID = "text/vnd.mermaid"


@router.get("/", include_in_schema=False, openapi_extra=needs("public"))
async def get_root(request: Request) -> Response:
    """Redirects a person who opens the service in a browser to its console, or to its description if there is none."""
    return RedirectResponse("/docs" if service_of(request).settings.no_console else "/console")


@router.get(
    "/v1/circuit",
    summary="The circuit of the present rules",
    response_model=dict[str, Any],
    responses={
        200: {"content": {MERMAID: {"schema": {"type": "string"}}}},
        **problems(*READ_ERRORS),
    },
    openapi_extra=needs("reader"),
    operation_id="getCircuit",
)
async def get_circuit(
    request: Request,
    format: Annotated[
        Literal["json", "mermaid"] | None, Query(description="Takes precedence over the Accept header.")
    ] = None,
    at_least: AtLeast = None,
    as_of: AsOf = None,
) -> Response:
    """Strata, delta plans and demanded indexes, as JSON or as a Mermaid diagram. For each stratum also where the engine
    has it (`place`: `resident` in the engine process, `spark`), `why`, and how many `tuples` it holds.
    """
    wanted = {"json": JSON, "mermaid": MERMAID}.get(format or "") or negotiate(
        request, (JSON, MERMAID, "text/plain")
    )
    principal_of(request).check_reads_all("the circuit")
    snapshot = await pin(service_of(request), at_least, as_of)
    headers = {"Zedlog-Epoch": str(snapshot.epoch), "Zedlog-Token": snapshot.token}
    if wanted == JSON:
        return json_response(circuit_json(snapshot), headers=headers)
    return Response(circuit_mermaid(snapshot), headers=headers, media_type=wanted)


@router.get(
    "/v1/epochs",
    summary="What the last epochs did",
    response_model=Epochs,
    responses=problems(InvalidParameterError, NotAcceptableError),
    dependencies=[Depends(answers_json)],
    openapi_extra=needs("reader"),
    operation_id="getEpochs",
)
async def get_epochs(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        int | None, Query(ge=0, le=2**63 - 1, description="Only epochs before this one.")
    ] = None,
) -> Response:
    """For each epoch, newest first: the changes of each relation, strategy, placement, cost and time. Also what the
    engine is evaluating, and whether transactions were refused because of bugs in Zedlog itself.
    """
    client = service_of(request).client
    epochs = await client.epochs(before, limit)
    oldest = epochs[-1]["epoch"] if len(epochs) == limit else None
    principal = principal_of(request)
    return json_response(
        {
            "epochs": [visible_epoch(principal, epoch) for epoch in epochs],
            "before": oldest,
            **_activity(await client.status(), principal),
        }
    )


def _activity(status: EngineStatus, principal: Principal) -> dict[str, Any]:
    """What is running, and the faults of Zedlog itself; the text of a fault may tell of any relation."""
    running = None if status.evaluating is None else asdict(status.evaluating)
    if running is not None:
        running["relations"] = list(filter(principal.may_read, running["relations"]))
    return {
        "running": running,
        "faults": status.faults,
        "last_fault": status.fault if principal.reads is None else None,
    }


@router.get(
    "/healthz",
    summary="Is the process alive?",
    response_model=Health,
    openapi_extra=needs("public"),
    operation_id="getHealth",
)
async def get_health() -> Response:
    """Depends on nothing but the process itself: restart the service if this fails."""
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    summary="Is the service ready?",
    response_model=Readiness,
    responses=problems(EngineUnavailableError),
    openapi_extra=needs("public"),
    operation_id="getReadiness",
)
async def get_readiness(request: Request) -> Response:
    """200 if Redis can be reached and an engine serves the database, otherwise 503 with what is missing."""
    service, principal = service_of(request), principal_of(request)
    try:
        status = await service.client.status()
        audits = await service.client.audits.last()
    except StorageUnavailableError as error:
        error.detail["missing"] = ["redis"]
        service.readiness.note("storage", f"the service is not ready: {error.message}; it keeps trying")
        raise
    detail: dict[str, Any] = {
        "engine": status.state,
        "epoch": status.epoch,
        "lag": status.lag,
        "recovered": status.recovered if principal.reads is None else None,
        "audits": last_documents(audits),
        **_activity(status, principal),
    }
    if not status.running:
        reason = f": {status.error}" if status.error else ""
        text = f"no engine serves the database {shown(service.settings.database)} now; it is {status.state}{reason}"
        kind = "failed" if status.state == "failed" else "engine"
        service.readiness.note(kind, f"the service is not ready: {text}; it keeps trying")
        if principal.reads is not None:
            text = text.removesuffix(reason)
        raise EngineUnavailableError(text, missing=["engine"], **detail)
    service.readiness.note(
        "ready", f"the service is ready: an engine serves {shown(service.settings.database)}"
    )
    return json_response({"status": "ready", "database": service.settings.database, **detail})


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    openapi_extra=needs("reader"),
    operation_id="getMetrics",
)
async def get_metrics(request: Request) -> Response:
    """Requests, latencies and indexes of this process; the present epoch, lag, and state of engine and storage."""
    service = service_of(request)
    await _observe(service)
    return Response(generate_latest(service.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _observe(service: Service) -> None:
    metrics = service.metrics
    metrics.indexes.now = service.client.indexes
    service.feeds.observe()
    try:
        status = await service.client.status()
        metrics.audits.now = await service.client.audits.last()
    except StorageUnavailableError:
        # Epoch and lag keep their last values: they are unknown, not zero.
        metrics.storage_up.set(0)
        metrics.engine_up.set(0)
        return
    metrics.storage_up.set(1)
    metrics.engine_up.set(int(status.running))
    metrics.epoch.set(status.epoch)
    metrics.lag.set(status.lag)
    metrics.faults.now = status.faults
    running = status.evaluating
    metrics.epoch_running.set(running.seconds if running is not None else 0)


def _problem_type(error: type[ZedlogError]) -> dict[str, Any]:
    return {
        "type": f"/problems/{error.code}",
        "code": error.code,
        "title": title_of(error.code),
        "status": STATUS[error],
        "description": summary(error),
    }


@router.get(
    "/problems",
    summary="All error codes",
    response_model=list[ProblemType],
    openapi_extra=needs("public"),
    operation_id="getProblems",
)
async def get_problems() -> Response:
    """What each code means and which status it has."""
    return json_response([_problem_type(error) for error in STATUS])


@router.get(
    "/problems/{code}",
    summary="One error code",
    response_model=ProblemType,
    responses=problems(NotFoundError),
    openapi_extra=needs("public"),
    operation_id="getProblem",
)
async def get_problem(code: Annotated[str, Path(examples=["syntax_error"])]) -> Response:
    """What the `type` of a problem document points to."""
    for error in STATUS:
        if error.code == code:
            return json_response(_problem_type(error))
    raise NotFoundError(f"there is no error code {shown(code)}; /problems lists them all", code_asked=code)
