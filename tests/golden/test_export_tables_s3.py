"""Delta and Iceberg tables in object storage have the rows, marks and refusals of local ones."""

import logging
import math
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import Request, urlopen

import pyarrow.dataset as ds
import pytest

from mqtool.choices import TableFormat
from mqtool.errors import ExportError, StoreError, StoreLockedError, UsageError
from mqtool.export import commit as protocol
from mqtool.export import tables
from mqtool.export.parquet import WriteOptions
from mqtool.export.plain import LocalRunner, export
from mqtool.export.run import ExportRequest, ExportResult
from mqtool.export.schema import ReadRequest
from mqtool.export.sources import resolve
from mqtool.export.target import RemoteTarget, target_of
from tests.support import lake
from tests.support.object_storage import ObjectStorage, object_storage
from tests.support.stores import copy_store
from tests.support.tiers import night

S3FileSystem = pytest.importorskip("s3fs").S3FileSystem
pytest.importorskip("moto")

NAME = "rollover-5.5.0"
EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")
ENDS = lake.record_ends(NAME)
KINDS = pytest.mark.parametrize("kind", list(TableFormat))
ALL_KINDS = pytest.mark.parametrize("kind", [None, *TableFormat], ids=lambda kind: kind or "plain")


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectStorage]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with object_storage() as service:
        yield service


@pytest.fixture(autouse=True)
def quiet_libraries() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Lake:
    """A store, its export into a prefix of its own, and the table there."""

    def __init__(self, kind: TableFormat | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if kind is not None:
            pytest.importorskip({TableFormat.DELTA: "deltalake", TableFormat.ICEBERG: "pyiceberg"}[kind])
        self.kind = kind
        self.store = copy_store(NAME, tmp_path)
        self.url = f"s3://stores/{secrets.token_hex(4)}/a lake"  # names of temporary directories recur
        self.catalogue = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalogue.db"}
        for name, value in self.catalogue.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__MQTOOL__{name.upper()}", value)

    def export(self, records: int, **options: Any) -> ExportResult:
        """Exports the first records of the store."""
        lake.grow(NAME, self.store, ENDS[records - 1])
        read = ReadRequest(every_class=True)
        request = ExportRequest(
            tuple(resolve([f"b={self.store}"])),
            self.url,
            **{"read": read, "state": f"{self.url}.state", "table": self.kind} | options.pop("request", {}),
        )
        return export(request, options.pop("runner", LocalRunner(1)))

    def delta(self) -> Any:
        """The Delta table, opened by its own library."""
        deltalake = pytest.importorskip("deltalake")
        options = target_of(self.url).delta_options()  # type: ignore[attr-defined]
        return deltalake.DeltaTable(f"{self.url}/messages", storage_options=options)

    def iceberg(self) -> Any:
        """The Iceberg table, opened by its own library and with its own driver of S3."""
        loading = pytest.importorskip("pyiceberg.catalog")
        endpoint = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"]}
        with closing(loading.load_catalog("mqtool", **self.catalogue, **endpoint)) as catalog:
            return catalog.load_table("rocketmq.messages")

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, in log order."""
        match self.kind:
            case TableFormat.DELTA:
                found = self.delta().to_pyarrow_table()
            case TableFormat.ICEBERG:
                found = self.iceberg().scan().to_arrow()
            case None:
                found = ds.dataset(f"{self.url[5:]}/messages", filesystem=S3FileSystem()).to_table()
        return lake.in_log_order([{name: row[name] for name in EXPECTED[0]} for row in found.to_pylist()])

    def merge(self) -> None:
        """Merges the files of the table, as OPTIMIZE and rewrite_data_files do."""
        if self.kind is TableFormat.DELTA:
            assert self.delta().optimize.compact()["numFilesRemoved"] > 1
        else:
            table = self.iceberg()
            table.overwrite(table.scan().to_arrow())


@KINDS
@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["flat", "directories"])
def test_each_run_adds_what_is_new(s3, tmp_path, monkeypatch, kind, partition_by):
    shared = Lake(kind, tmp_path, monkeypatch)
    for records in (40, 40, 90, len(ENDS)):
        result = shared.export(records, request={"write": WriteOptions(partition_by)})
        assert shared.rows() == EXPECTED[:records]
    assert result.committed
    assert [key for key in s3.keys("") if "staging" in key] == []


@pytest.mark.long
@pytest.mark.parametrize("kind", [None, TableFormat.DELTA, night(TableFormat.ICEBERG)])
def test_a_run_that_ends_after_any_change_loses_and_repeats_nothing(s3, tmp_path, monkeypatch, kind):
    """From some request on, the service denies all changes, as if the machine had been switched off."""
    failed, options = 0, {"write": WriteOptions(("topic",))}
    for changes in range(100):
        shared = Lake(kind, tmp_path / str(changes), monkeypatch)
        shared.export(40, request=options)
        s3.changes = changes
        try:
            shared.export(90, request=options)
        except (OSError, StoreError, ExportError):
            assert s3.changes < 0
            failed += 1
        else:
            assert s3.changes == 0
            break
        finally:
            s3.changes = math.inf
        shared.export(90, request=options)
        assert shared.rows() == EXPECTED[:90], changes
        assert [key for key in s3.keys(shared.url.removeprefix("s3://stores/")) if "staging" in key] == []
    assert failed > 8
    assert shared.rows() == EXPECTED[:90]


def test_many_objects_are_moved_together_but_not_all_at_once(s3):
    target, names = target_of("s3://stores/many"), [f"{number:02d}.parquet" for number in range(60)]
    for name in names:
        target.replace(f"staged/{name}", name.encode())
    s3.delay, s3.together = 0.02, 0
    try:
        assert target.move({f"staged/{name}": f"to/{name}" for name in names}) == []
        assert target.ends({f"to/{name}": len(name) for name in names}, 7) == [b"parquet"] * 60
    finally:
        s3.delay = 0
    assert 4 < s3.together <= 16


@ALL_KINDS
def test_requests_of_a_run_depend_on_its_files_and_not_on_earlier_runs(s3, tmp_path, monkeypatch, kind):
    shared, others = Lake(kind, tmp_path, monkeypatch), []
    runs = range(4, 56, 4 if kind is TableFormat.DELTA else 12)
    for records, options in (*((records, {}) for records in runs), (90, {"split_bytes": 1})):
        s3.requests.clear()
        result = shared.export(records, request=options)
        files = len(result.manifest.files)
        others.append(len(s3.requests) - files * (2 if kind is None else 3) - result.tasks)
    assert files == 38
    if kind is TableFormat.DELTA:
        assert others[-1] < max(others) <= 105  # until a checkpoint, 4 for each version of the table
    else:
        assert set(others[1:]) == {27 if kind is None else 57}


@KINDS
def test_footers_of_any_size_are_read(s3, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(tables, "_FOOTER", 100)
    shared = Lake(kind, tmp_path, monkeypatch)
    shared.export(40)
    assert shared.rows() == EXPECTED[:40]


class Killed(BaseException):
    """Ends a run like a signal."""


@KINDS
def test_a_run_that_is_killed_while_it_creates_the_table_is_completed(s3, tmp_path, monkeypatch, kind):
    shared = Lake(kind, tmp_path, monkeypatch)
    owner, name = {
        TableFormat.DELTA: ("deltalake.DeltaTable", "create_write_transaction"),
        TableFormat.ICEBERG: ("pyiceberg.table.Transaction", "commit_transaction"),
    }[kind]

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"{owner}.{name}", dies)
        with pytest.raises(Killed):
            shared.export(40)
    shared.export(40)
    assert shared.rows() == EXPECTED[:40]


class Between(LocalRunner):
    """Runs something else before the tasks."""

    def __init__(self, other: Callable[[], Any]) -> None:
        super().__init__(1)
        self.other = other

    def run(self, *arguments: Any) -> None:
        self.other()
        super().run(*arguments)


@KINDS
def test_the_second_of_two_writers_is_refused(s3, tmp_path, monkeypatch, kind):
    shared = Lake(kind, tmp_path, monkeypatch)
    shared.export(10)
    with pytest.raises(StoreLockedError, match="another export has committed here since this one began"):
        shared.export(20, runner=Between(lambda: shared.export(30)))
    assert shared.rows() == EXPECTED[:30]


@KINDS
def test_of_two_runs_that_complete_a_commit_at_once_one_adds_it_to_the_table(s3, tmp_path, monkeypatch, kind):
    shared = Lake(kind, tmp_path, monkeypatch)
    shared.export(10)
    table = tables._Delta if kind is TableFormat.DELTA else tables._Iceberg
    library = {
        TableFormat.DELTA: "deltalake.DeltaTable.create_write_transaction",
        TableFormat.ICEBERG: "pyiceberg.table.Transaction.commit_transaction",
    }[kind]
    owner, _, name = library.rpartition(".")
    module, _, cls = owner.rpartition(".")
    holder = getattr(pytest.importorskip(module), cls)
    known = getattr(holder, name)

    def later(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(holder, name, known)
        assert tables.publish(kind, target_of(shared.url))  # as another run does that begins now
        return known(*arguments, **options)

    monkeypatch.setattr(holder, name, later)
    assert table(target_of(shared.url)).sequence() == 1
    shared.export(30)
    assert shared.rows() == EXPECTED[:30]
    assert table(target_of(shared.url)).sequence() == 2


@KINDS
@pytest.mark.parametrize("is_merged", [False, True], ids=["as exported", "merged"])
def test_a_log_that_was_cut_is_rewound(s3, tmp_path, monkeypatch, kind, is_merged):
    shared = Lake(kind, tmp_path, monkeypatch)
    for records in (40, 90):
        shared.export(records)
    if is_merged:
        shared.merge()
    with pytest.raises(ExportError, match="the log is shorter than at the last export"):
        shared.export(60)
    with pytest.raises(UsageError, match=f"{kind} table refers to files that this run removes; add --table-format"):
        shared.export(60, request={"rewind": True, "table": None})
    shared.export(60, request={"rewind": True})
    assert shared.rows() == EXPECTED[:60]
    shared.export(len(ENDS))
    assert shared.rows() == EXPECTED


def test_a_delta_table_that_another_program_changed_is_refused(s3, tmp_path, monkeypatch):
    shared = Lake(TableFormat.DELTA, tmp_path, monkeypatch)
    for records in (2, 60):
        shared.export(records)
    shared.merge()
    (merged,) = shared.delta().file_uris()
    for key in s3.keys(f"{shared.url.removeprefix('s3://stores/')}/messages/part-"):  # as VACUUM does
        if not merged.endswith(key.rpartition("/")[2]):
            s3.client.delete_object(Bucket="stores", Key=key)
    lake.grow(NAME, shared.store, ENDS[49])
    min((shared.store / "commitlog").iterdir()).unlink()
    sources = tuple(resolve([f"b={shared.store}"]))
    read = ReadRequest(every_class=True)
    rewound = ExportRequest(sources, shared.url, read, state=f"{shared.url}.state", table=shared.kind, rewind=True)
    with pytest.raises(ExportError, match=r"part-0.*parquet: is missing, although the export published it"):
        export(rewound, LocalRunner(1))
    assert shared.rows() == EXPECTED[:60]


def test_the_endpoint_and_the_keys_of_a_profile_are_used(s3, tmp_path, monkeypatch):
    shared = Lake(TableFormat.DELTA, tmp_path, monkeypatch)
    (tmp_path / "config").write_text(f"[profile lake]\nregion = eu-west-1\nendpoint_url = {s3.url}\n")
    (tmp_path / "keys").write_text("[lake]\naws_access_key_id = known\naws_secret_access_key = also\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "lake")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    S3FileSystem.clear_instance_cache()  # it would be the driver with the keys of the environment
    shared.export(40)
    assert shared.rows() == EXPECTED[:40]
    assert target_of(shared.url).delta_options() == {  # type: ignore[attr-defined]
        "aws_access_key_id": "known",
        "aws_secret_access_key": "also",
        "aws_region": "eu-west-1",
        "aws_endpoint_url": s3.url,
        "aws_allow_http": "true",
    }
    S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("url", "configured", "expected"),
    [
        (
            "gs://bucket/lake",
            {"token": "key.json"},
            {"google_service_account": "key.json"},
        ),
        (
            "abfs://container/lake",
            {"account_name": "a", "account_key": "k"},
            {"azure_storage_account_name": "a", "azure_storage_account_key": "k"},
        ),
    ],
)
def test_options_of_the_other_stores_have_the_names_of_deltalake(monkeypatch, url, configured, expected):
    """What their services make of them is not tried."""

    class Driver:
        storage_options: ClassVar[dict[str, str]] = configured

    monkeypatch.setattr("mqtool.export.target.file_system", lambda url: (Driver(), url))
    assert RemoteTarget(url).delta_options() == expected


def test_a_table_of_glue(s3, tmp_path, monkeypatch):
    shared = Lake(TableFormat.ICEBERG, tmp_path, monkeypatch)
    monkeypatch.setenv("PYICEBERG_CATALOG__MQTOOL__TYPE", "glue")
    shared.catalogue = {"type": "glue"}
    for records in (40, 40, len(ENDS)):
        shared.export(records)
        assert shared.rows() == EXPECTED[:records]
    shared.url += "/another"
    with pytest.raises(UsageError, match=r"messages of the catalogue has the files of another directory, s3://stores/"):
        shared.export(40)


def test_a_table_of_iceberg_needs_a_catalogue_there(s3, tmp_path, monkeypatch):
    shared = Lake(TableFormat.ICEBERG, tmp_path, monkeypatch)
    for name in shared.catalogue:
        monkeypatch.delenv(f"PYICEBERG_CATALOG__MQTOOL__{name.upper()}")
    with pytest.raises(UsageError, match="needs a catalogue; configure 'mqtool' for pyiceberg"):
        shared.export(40)


def require_known_keys_after(s3: ObjectStorage, requests: int) -> None:
    """Lets the service check the keys of requests, after a number of them."""
    change = Request(f"{s3.url}/moto-api/reset-auth", str(requests).encode(), {"Content-Type": "text/plain"})
    with urlopen(change):
        pass


@KINDS
def test_a_missing_bucket_and_wrong_credentials_are_one_line(s3, tmp_path, monkeypatch, kind):
    shared = Lake(kind, tmp_path, monkeypatch)
    shared.url = "s3://no-such-bucket/lake"
    with pytest.raises(StoreError, match="s3://no-such-bucket/lake: The specified bucket does not exist; create") as no:
        shared.export(40)
    assert [bucket["Name"] for bucket in s3.client.list_buckets()["Buckets"]] == ["stores"]
    shared.url = "s3://stores/denied"
    require_known_keys_after(s3, 0)
    try:
        with pytest.raises(StoreError, match="s3://stores/denied: PermissionError: The AWS Access Key Id") as denied:
            shared.export(40)
    finally:
        require_known_keys_after(s3, 1 << 30)
    assert all("\n" not in str(failure.value) for failure in (no, denied))
    assert s3.keys("denied") == []


@KINDS
def test_a_table_that_cannot_be_changed_now_is_completed_by_the_next_run(s3, tmp_path, monkeypatch, kind):
    shared = Lake(kind, tmp_path, monkeypatch)
    shared.export(40)
    table = tables._Delta if kind is TableFormat.DELTA else tables._Iceberg

    def fails(*_: Any) -> None:
        raise OSError("the connection\nis closed")

    with monkeypatch.context() as patch:
        patch.setattr(table, "apply", fails)
        with pytest.raises(ExportError, match=r"commit 2 are published, but .* table: the connection is closed; run"):
            shared.export(90)
    assert shared.rows() == EXPECTED[:40]
    shared.export(90)
    assert shared.rows() == EXPECTED[:90]
    state = protocol.load_state(f"{shared.url}.state")
    assert state is not None
    assert state.sequence == 2
