"""Who may ask, what is refused, and that clients of the broker do not wait for the page."""

import socket
import threading

import pytest

from mqtool.engine import StoreOptions, open_store
from mqtool.server.admin import message
from mqtool.server.admin import site as pages
from mqtool.server.admin.port import AdminHttp
from mqtool.server.admin.site import Access, Site, is_own_host
from tests.support.damage import damage_case
from tests.support.stores import copy_store, tree_digest

PAGES = sorted(pages.ROUTES)


def raw(site, data: bytes) -> bytes:
    host, _, port = site.admin.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)
        return connection.makefile("rb").read()


@pytest.mark.parametrize("path", [*PAGES, "/style.css"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_pages_only_read(site, path, method):
    got = site.get(path, method)
    assert (got.status, got.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_a_body(site):
    got = site.get("/", "HEAD")
    assert (got.status, got.text, int(got.headers["content-length"]) > 1000) == (200, "", True)


@pytest.mark.parametrize("path", [*PAGES, "/style.css"])
def test_every_reply_forbids_what_it_does_not_need(site, path):
    headers = site.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; ")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("[::1]:1", 200),
        ("192.0.2.7", 200),
        ("broker.example:80", 200),
        ("BROKER.example.", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("[evil]", 421),
    ],
)
def test_a_name_that_is_not_its_own_is_not_served(site, named, host, status):
    assert site.get("/", host=host, port=named).status == status


@pytest.fixture(scope="module")
def named(site):
    """A port whose pages are served under a name, too."""
    pages_of = Site(site.server.broker, Access(frozenset({"broker.example"})))
    http = AdminHttp(site.server.broker, "127.0.0.1", 0, pages_of)
    site.run(http.start())
    yield http.port
    site.run(http.stop())


@pytest.mark.parametrize("host", [None, "", ":80", "[", "]"])
def test_no_host_is_no_host_of_its_own(host):
    assert not is_own_host(host, {""})


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /messages?id=" + b"a" * 5000 + b" HTTP/1.1\r\nHost: localhost", b"414"),
        (b"GET /messages?id=" + b"a" * 2000 + b" HTTP/1.1\r\nHost: localhost", b"400"),
        (
            b"GET /messages?" + b"&".join(b"f%d=1" % number for number in range(20)) + b" HTTP/1.1\r\nHost: localhost",
            b"400",
        ),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", b"400"),
        (b"GET / SPDY/3\r\nHost: localhost", b"400"),
        (b"GET / HTTP/1.1", b"421"),
    ],
    ids=["target", "field", "fields", "hosts", "protocol", "no host"],
)
def test_more_than_is_taken_is_refused(site, head, status):
    assert raw(site, head + b"\r\n\r\n").split(b" ")[1] == status


def test_a_head_without_an_end_is_cut_off(site):
    assert raw(site, b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000) == b""


def test_with_accounts_no_message_is_shown(serve, tmp_path):
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: somebody\n  secretKey: 12345678\n  admin: true\n", "utf-8")
    site = serve(acl=accounts)
    assert site.get("/messages?physical=0").status == 403
    assert "/messages" not in site.get("/").text


def test_clients_do_not_wait_for_a_page(serve, monkeypatch):
    site = serve()
    begun, go_on = threading.Event(), threading.Event()

    def slow(question):
        begun.set()
        assert go_on.wait(60)
        return pages.problem(200, "late", "late", question)

    monkeypatch.setitem(pages.ROUTES, "/topics", slow)
    asking = threading.Thread(target=site.get, args=("/topics",))
    asking.start()
    try:
        assert begun.wait(60)
        with site.connect() as client:
            assert client.put("Beside", b"x").code == 0
        assert site.get("/healthz").text == "ok\n"
    finally:
        go_on.set()
        asking.join()


def test_a_page_that_takes_too_long_is_given_up(serve, monkeypatch):
    from mqtool.server.admin import site as site_module

    site = serve()
    go_on = threading.Event()
    monkeypatch.setattr(site_module, "MAX_SECONDS", 0.05)
    monkeypatch.setitem(pages.ROUTES, "/topics", lambda question: go_on.wait(60) and pages.style())
    try:
        got = site.get("/topics")
        assert (got.status, got.headers["retry-after"]) == (503, "2")
    finally:
        go_on.set()


def test_a_page_that_fails_is_logged_and_the_next_one_served(serve, monkeypatch, caplog):
    def fails(_question):
        raise ValueError("no such row")

    site = serve()
    monkeypatch.setitem(pages.ROUTES, "/topics", fails)
    got = site.get("/topics")
    assert (got.status, "See the log of the server for the error." in got.text) == (500, True)
    assert "page failed path=/topics" in caplog.text
    assert "ValueError: no such row" in caplog.text
    assert site.get("/groups").status == 200


def test_a_damaged_message_is_left_out_of_a_page(tmp_path):
    with open_store(tmp_path, StoreOptions()) as store:
        whole = store.message_at(store.put("T", 0, b"whole").physical_offset)
        assert [one.record.body for one in message._read([memoryview(bytes(100)), whole])] == [b"whole"]


def test_too_many_pages_at_once_are_refused(serve, monkeypatch):
    from mqtool.server.admin import site as site_module

    site = serve()
    monkeypatch.setattr(site_module, "MAX_WAITING", 0)
    assert (site.get("/").status, site.get("/healthz").status) == (503, 200)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_store_that_is_only_read_has_the_page_and_keeps_its_bytes(serve, tmp_path, damaged):
    store = (
        damage_case("old-zero-page@5.5.0-clean", tmp_path / "s") if damaged else copy_store("orders-5.5.0", tmp_path)
    )
    before = tree_digest(store)
    site = serve(store, read_only=True)
    assert "read-only</strong>" in site.get("/").text
    found = site.get("/messages?topic=Orders&queue=0&offset=1")
    assert (found.status, "Offset message id" in found.text) == (200, True)
    assert tree_digest(store) == before


def test_metrics_and_health_are_where_they_were(site):
    got = site.get("/metrics")
    assert (got.status, got.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = {line.split(" ")[2] for line in got.text.splitlines() if line.startswith("# TYPE ")}
    assert {
        "rocketmq_messages_in_total",
        "rocketmq_messages_out_total",
        "rocketmq_consumer_lag_messages",
        "rocketmq_throughput_in_total",
        "rocketmq_storage_dispatch_behind_bytes",
        "rocketmq_topic_number",
    } <= families
    assert [site.get(path).text for path in ("/healthz", "/readyz")] == ["ok\n", "ready\n"]


def test_a_broker_that_stops_is_not_ready(serve):
    site = serve()

    async def retire():
        site.server.broker.retire()

    site.run(retire())
    assert [site.get(path).status for path in ("/healthz", "/readyz", "/")] == [200, 503, 503]
