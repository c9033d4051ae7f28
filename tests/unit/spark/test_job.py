"""Jobs and sessions, with a Spark that is played by this process; no Java is needed."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqtool.errors import CorruptionError, StoreError, UnavailableError, UsageError

pytest.importorskip("pyspark")

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

import mqtool
from mqtool.spark import job, session
from mqtool.spark.job import SparkJob, SparkJobError


class Errors:
    """Spark's accumulator of lists."""

    def __init__(self):
        self.value = []

    def add(self, errors):
        self.value = self.value + errors


class Context:
    """A driver with one executor; a task that fails is attempted again, as Spark does on a cluster."""

    def __init__(self, monkeypatch, master="spark://host:7077", conf=None):
        self.master, self.conf, self.attempts, self.jobs = master, conf or {}, 0, 0
        monkeypatch.setattr(job, "TaskContext", SimpleNamespace(get=lambda: self.task))
        monkeypatch.setattr(job, "InheritableThread", job_thread)

    @property
    def task(self):
        return SimpleNamespace(attemptNumber=lambda: self.attempts - 1)

    def getConf(self):
        return self.conf

    def accumulator(self, _value, _param):
        return Errors()

    def setJobGroup(self, *_args, **_named):
        self.jobs += 1

    def cancelJobGroup(self, _group):
        pass

    def parallelize(self, items, _parts):
        return SimpleNamespace(mapPartitions=lambda work: SimpleNamespace(collect=lambda: self.run(work, items)))

    def run(self, work, items):
        while True:
            self.attempts += 1
            try:
                return list(work(items))
            except (OSError, StoreError):
                assert self.attempts < int(self.conf.get("spark.task.maxFailures", 4))


def job_thread(target, **_named):
    """A thread that has ended when it has started."""
    return SimpleNamespace(start=target, join=lambda: None)


def run(context, work, items=(1, 2, 3)):
    return SparkJob(SimpleNamespace(sparkContext=context), "group", work, lambda _: 1).run(list(items), "what")


def failing(error, times):
    """Work that fails so many times, then doubles."""
    left = [error] * times

    def work(items):
        for item in items:
            if left:
                raise left.pop()
            yield 2 * item

    return work


def test_a_job_without_items_is_not_started(monkeypatch):
    context = Context(monkeypatch)
    assert run(context, failing(OSError("disk"), 1), []) == []
    assert context.jobs == 0


@pytest.mark.parametrize(("conf", "most"), [({}, 4), ({"spark.task.maxFailures": "2"}, 2)])
@pytest.mark.parametrize("error", [OSError("disk"), StoreError("gone", "store")], ids=["OSError", "StoreError"])
def test_an_error_on_a_cluster_ends_the_job_with_the_last_attempt(conf, most, error, monkeypatch):
    context = Context(monkeypatch, conf=conf)
    assert run(context, failing(error, most - 1)) == [2, 4, 6]
    assert context.attempts == most
    context = Context(monkeypatch, conf=conf)
    with pytest.raises(type(error)) as failure:
        run(context, failing(error, most))
    assert failure.value is error
    assert context.attempts == most


@pytest.mark.parametrize(
    ("master", "error"),
    [("local[2]", OSError("disk")), ("spark://host:7077", CorruptionError("bad-crc", "store", 7))],
    ids=["on this machine", "damage"],
)
def test_what_another_attempt_cannot_mend_is_not_tried_again(master, error, monkeypatch):
    context = Context(monkeypatch, master)
    with pytest.raises(type(error)) as failure:
        run(context, failing(error, 1))
    assert failure.value is error
    assert context.attempts == 1


def test_an_error_that_is_not_of_spark_is_raised_as_it_is(monkeypatch):
    error = RuntimeError("of the driver")
    with pytest.raises(RuntimeError) as failure:
        run(Context(monkeypatch), failing(error, 1))
    assert failure.value is error


def test_spark_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UnavailableError, match="Spark needs pyspark and Java 17: "):
        session.require_spark()


@pytest.fixture
def started(monkeypatch):
    """The settings of the sessions that were started; none really is."""
    found = []

    def start(builder):
        found.append(dict(builder._options))
        return SimpleNamespace(dataSource=SimpleNamespace(register=found.append))

    monkeypatch.setattr(session, "require_spark", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    return found


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_only_a_session_on_this_machine_is_bound_to_it(master, started):
    session.build(master, {"spark.driver.memory": "1g"})
    settings, _ = started
    bound = {name: settings[name] for name in session.LOCAL_SETTINGS if name in settings}
    assert bound == (session.LOCAL_SETTINGS if master.startswith("local") else {})
    assert os.environ.get("SPARK_LOCAL_IP") == ("127.0.0.1" if master.startswith("local") else None)
    assert settings["spark.driver.memory"] == "1g"


@pytest.mark.parametrize("others", [[], ["/opt/other"]])
def test_processes_of_spark_find_this_copy_once(others, started, monkeypatch):
    home = str(Path(mqtool.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(others))
    for _ in range(2):
        session.build("local")
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [home, *others]
    assert len(started) == 4


def test_a_session_that_does_not_start_is_one_line(started, monkeypatch):
    def refuse(_builder):
        raise RuntimeError("Java gateway process exited\nbefore sending its port number")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    with pytest.raises(SparkJobError, match=r"^Spark cannot start on local: Java gateway process exited$"):
        session.build("local")
    assert started == []


class Connected:
    """A session of Spark Connect."""

    @property
    def sparkContext(self):
        raise PySparkAttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED] Attribute `sparkContext` is not supported")


def test_a_session_of_spark_connect_is_refused_with_what_works_there():
    with pytest.raises(
        UsageError, match=r"Spark Connect runs no jobs of mqtool: .* read with format\('rocketmq-store'\)"
    ):
        SparkJob(Connected(), "group", list, len)
