"""What is in deploy/: manifests fit the API, their scripts do what they say, and every metric that is named exists."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqtool
from tests.house.modules import ROOT
from tests.support.stores import copy_store, sizes_of

yaml = pytest.importorskip("yaml")
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
MONITORING = DEPLOY / "monitoring"
METRIC = re.compile(r"\b(?:rocketmq|mqtool)_[a-z_]+\b")


def documents() -> Iterator[tuple[str, Any]]:
    for path in sorted(KUBERNETES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            yield path.name, document


def containers() -> dict[str, Any]:
    """Every container of the manifests by its name."""
    found = {}
    for _, document in documents():
        spec = document.get("spec", {})
        pod = document["spec"] if document["kind"] == "Pod" else spec.get("template", {}).get("spec", {})
        found |= {one["name"]: one for one in [*pod.get("initContainers", []), *pod.get("containers", [])]}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("release", ["1.30", None])
def test_the_manifests_fit_the_schemas_of_the_api(release):
    validate = pytest.importorskip("kubernetes_validate").validate
    release = release or pytest.importorskip("kubernetes_validate").latest_version()
    kinds = []
    for _, document in documents():
        validate(document, release, strict=True)
        kinds.append(document["kind"])
    assert sorted(kinds) == ["ConfigMap", "Pod", "Service", "Service", "StatefulSet", "StatefulSet"]


def test_no_container_of_ours_runs_as_root_or_writes_to_its_image():
    ours = {name: one for name, one in containers().items() if "mqtool" in one["image"]}
    assert set(ours) == {"start-guard", "verify-exporter", "mqtool"}
    assert {one["image"] for one in ours.values()} == {f"rocketmq-mqtool:{mqtool.__version__}"}
    for one in ours.values():
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
    for name in ("start-guard", "verify-exporter"):
        assert next(mount for mount in ours[name]["volumeMounts"] if mount["name"] == "store")["readOnly"] is True


def script_of(container: str, store: Path, **variables: str) -> tuple[list[str], dict[str, str]]:
    """The command of a container with the paths of this test, and its environment."""
    one = containers()[container]
    config = next(document for _, document in documents() if document["kind"] == "ConfigMap")["data"]["broker.conf"]
    (store.parent / "broker.conf").write_text(config.replace("/store", str(store)) + sizes_of("crash-5.5.0"))
    (script,) = one["args"]
    places = {"store": store, "etc/rocketmq/broker.conf": store.parent / "broker.conf"}
    script, count = re.subn(
        r"(?<= )/(store|metrics|etc/rocketmq/broker\.conf)\b",
        lambda found: str(places.get(found[1], store.parent / found[1])),
        script,
    )
    assert count >= 2
    given = {entry["name"]: entry["value"] for entry in one["env"]} | variables
    program = store.parent / "bin" / "mqtool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mqtool "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return [*one["command"], script], os.environ | given | {"PATH": path, "PYTHONPATH": str(ROOT)}


def guarded(store: Path, **variables: str) -> tuple[int, str]:
    command, environment = script_of("start-guard", store, **variables)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout


def crashed(directory: Path, *, damaged: bool) -> Path:
    store = copy_store("crash-5.5.0", directory)
    for name in sorted((store / "commitlog").iterdir())[:1] if damaged else []:
        data = bytearray(name.read_bytes())
        data[40_000] ^= 1
        name.write_bytes(data)
    return store


@pytest.mark.slow
def test_the_guard_lets_a_broker_start_that_loses_nothing(tmp_path):
    code, printed = guarded(crashed(tmp_path, damaged=False))
    assert (code, "starts, and loses no message" in printed) == (0, True)


@pytest.mark.slow
def test_the_guard_lets_a_new_broker_start_on_an_empty_volume(tmp_path):
    (tmp_path / "store" / "lost+found").mkdir(parents=True)
    assert guarded(tmp_path / "store")[0] == 0


@pytest.mark.slow
def test_the_guard_stops_a_start_that_would_lose_messages_unless_it_is_switched_off(tmp_path):
    store = crashed(tmp_path / "a", damaged=True)
    code, printed = guarded(store)
    assert (code, "but loses 1774 messages; 1 is lost already" in printed) == (1, True)
    assert "The broker is not started" in printed
    assert guarded(crashed(tmp_path / "b", damaged=True), START_ANYWAY="yes")[0] == 0


@pytest.mark.slow
def test_the_guard_stops_where_it_cannot_tell(tmp_path):
    store = tmp_path / "store"
    store.write_text("not a directory")
    assert guarded(store)[0] == 1


@pytest.mark.slow
def test_the_exporter_serves_what_verify_says_and_ends_on_request(tmp_path):
    store = crashed(tmp_path, damaged=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (store.parent / "metrics").mkdir()
    command, environment = script_of("verify-exporter", store, PORT=str(port))
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            answer = fetched(f"http://127.0.0.1:{port}/metrics.txt")
            assert answer.headers["content-type"] == "text/plain"
            text = answer.read().decode()
            assert f'mqtool_verify_state{{store="{store}",state="corrupt"}} 1\n' in text
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    scraped = {
        document["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"]
        for _, document in documents()
        if document["kind"] == "StatefulSet"
    }
    assert scraped == {"/metrics", "/metrics.txt"}


def fetched(url: str) -> Any:
    end = time.monotonic() + 60
    while True:
        try:
            return urllib.request.urlopen(url, timeout=10)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def alerts() -> list[dict[str, Any]]:
    """The rules in alerts.yaml."""
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """Every PromQL expression of the alerts and the dashboard; variables of Grafana have a value."""
    found = [rule["expr"] for rule in alerts()]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
    found += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [
        re.sub(r"^label_values\((.+), \w+\)$", r"\1", one["definition"]) for one in dashboard["templating"]["list"][1:]
    ]
    return [one.replace("$__rate_interval", "5m").replace("$broker", ".*") for one in found]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> set[str]:
    """Names of the metrics that `verify` writes about a damaged store, and those that a served store exports."""
    directory = tmp_path_factory.mktemp("exported")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    verify = [
        sys.executable,
        "-m",
        "mqtool",
        "verify",
        crashed(directory / "v", damaged=True),
        "--format",
        "prometheus",
    ]
    text = subprocess.run(verify, env=environment, capture_output=True, text=True, check=False).stdout
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    serve = [sys.executable, "-m", "mqtool", "serve", copy_store("orders-5.5.0", directory / "s"), "--admin-port", port]
    serve += ["--port", "0", "--namesrv-port", "0"]
    with subprocess.Popen(serve, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        text += fetched(f"http://127.0.0.1:{port}/metrics").read().decode()
        process.terminate()
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


@pytest.mark.slow
def test_every_metric_that_alerts_and_dashboard_name_is_exported(exported):
    named = {name for one in expressions() for name in METRIC.findall(one)}
    assert len(named) > 15
    assert named - exported == set()
    tested = METRIC.findall((MONITORING / "alerts.test.yaml").read_text("utf-8"))
    assert set(tested) - exported == set()


def test_every_alert_says_what_to_do():
    rules = alerts()
    assert len(rules) == len({rule["alert"] for rule in rules}) > 8
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_each_alert_has_a_test_in_which_it_fires():
    tests = yaml.safe_load((MONITORING / "alerts.test.yaml").read_text("utf-8"))["tests"]
    fires = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one.get("exp_alerts")}
    assert fires == {rule["alert"] for rule in alerts()}


def test_the_panels_of_the_dashboard_do_not_overlap():
    panels = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))["panels"]
    taken = [
        (x, y)
        for one in (panel["gridPos"] for panel in panels)
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.slow
def test_prometheus_takes_the_rules_and_the_expressions(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian and Ubuntu: prometheus)")
    rules = {
        "groups": [{"name": "all", "rules": [{"record": f"r{n}", "expr": one} for n, one in enumerate(expressions())]}]
    }
    (tmp_path / "all.yaml").write_text(json.dumps(rules))
    for command in (
        ["check", "rules", tmp_path / "all.yaml"],
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts.test.yaml"],
    ):
        result = subprocess.run([promtool, *command], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_systemd_takes_the_units(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    for path in (DEPLOY / "systemd").glob("mqtool*"):
        text = (
            path.read_text("utf-8").replace("/usr/local/bin/mqtool", "/bin/true").replace("User=rocketmq", "User=root")
        )
        (tmp_path / path.name.replace("@", "@data-store")).write_text(text)
    units = sorted(tmp_path.iterdir())
    assert [unit.suffix for unit in units] == [".service", ".timer"]
    result = subprocess.run([analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    assert (result.returncode, [line for line in result.stderr.splitlines() if "mqtool" in line]) == (0, [])
