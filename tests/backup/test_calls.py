"""The calls of backups without a live system: what they answer before anything is read, and whom they refuse."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from engine.backup.reading import opened
from service.app import create_app
from service.principal import Principal
from service.settings import Settings
from tests.service.behind import As
from tests.service.conftest import GRAPH, Http
from tests.service.fake import FakeClient


def http(folder: Path, principal: Principal | None = None) -> Http:
    app = create_app(Settings(batch_dir=folder, max_upload_bytes=1_000), FakeClient())  # type: ignore[arg-type]
    return Http(app if principal is None else As(app, principal))


def test_a_backup_over_http(tmp_path: Path) -> None:
    client = http(tmp_path)
    client.post("/v1/transactions", json=GRAPH)
    answer = client.get("/v1/backup")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="default-1.zip"'
    assert answer.headers["zedlog-epoch"] == "1"
    (tmp_path / "b.zip").write_bytes(answer.content)
    assert opened(tmp_path / "b.zip").manifest.rows == 3
    with zipfile.ZipFile(io.BytesIO(client.get("/v1/backup", params={"as_of": 0}).content)) as archive:
        assert not [name for name in archive.namelist() if name.startswith("facts/")]
    assert client.get("/v1/backup", params={"as_of": 7}).json()["code"] == "epoch_not_retained"
    assert client.get("/v1/backup", headers={"accept": "text/csv"}).status_code == 406
    client.close()


def test_a_restore_over_http(tmp_path: Path) -> None:
    client = http(tmp_path)
    job = client.post("/v1/restore", content=b"x" * 10)
    assert (job.status_code, job.json()["kind"]) == (202, "restore")
    assert (tmp_path / "default/uploads" / job.json()["request"]["paths"][0]).read_bytes() == b"x" * 10
    assert client.post("/v1/restore", content=b"x" * 2_000).json()["code"] == "body_too_large"
    assert client.post("/v1/restore", content=b"").json()["code"] == "invalid_request"
    # The same restore again, when it has been applied: the key finds it.
    again = {"idempotency-key": "k"}
    first = client.post("/v1/restore", content=b"y", headers=again).json()["job"]
    client.post("/v1/transactions", json=GRAPH)
    assert client.post("/v1/restore", content=b"y", headers=again).json()["job"] == first
    refused = client.post("/v1/restore", content=b"y")
    assert (refused.status_code, refused.json()["code"]) == (409, "database_not_empty")
    client.close()


@pytest.mark.parametrize(
    "principal",
    [Principal("ann", reads=frozenset({"edge"})), Principal("ann", writes=frozenset({"edge"}))],
)
def test_who_may_see_or_change_only_some_relations_is_refused(tmp_path: Path, principal: Principal) -> None:
    client = http(tmp_path, principal)
    for answer in (client.get("/v1/backup"), client.post("/v1/restore", content=b"x")):
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    # Nothing was stored.
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    client.close()


def test_nobody_can_say_that_a_transaction_is_a_restore(tmp_path: Path) -> None:
    client = http(tmp_path)
    for body in ({**GRAPH, "onto_empty": True}, {**GRAPH, "batches": []}):
        refused = client.post("/v1/transactions", json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request"), refused.text
    assert client.get("/v1/relations").json()["relations"] == []
    client.close()


def test_both_calls_are_for_admins(tmp_path: Path) -> None:
    client = http(tmp_path)
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/v1/backup"]["get"]["x-zedlog-role"] == "admin"
    assert paths["/v1/restore"]["post"]["x-zedlog-role"] == "admin"
    client.close()
