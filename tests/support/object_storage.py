"""An S3 service on loopback, and what was asked of it."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

BUCKET = "stores"
_LOCK = threading.Lock()


@dataclass
class ObjectStorage:
    """A running service.

    Attributes:
        url: of its API.
        requests: (method, key, bytes of the answer's body) of each request so far.
        changes: number of requests that may still change something; those after them are denied.
        delay: seconds that each answer takes.
        together: maximum number of requests that were in work at the same time.
    """

    url: str
    client: Any
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    changes: float = math.inf
    delay: float = 0
    together: int = 0
    _working: int = 0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Counts a request that is in work."""
        with _LOCK:
            self._working += 1
            self.together = max(self.together, self._working)
        time.sleep(self.delay)
        yield
        with _LOCK:
            self._working -= 1

    def allows(self, method: str) -> bool:
        """Whether a request is not denied."""
        with _LOCK:
            self.changes -= method in ("PUT", "POST", "DELETE")
            return self.changes >= 0 or method in ("GET", "HEAD")

    def upload(self, directory: Path, prefix: str) -> str:
        """Puts every file below a directory there; returns the URL of the prefix."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(directory).as_posix()}")
        self.requests.clear()
        return f"s3://{BUCKET}/{prefix}"

    def got(self, part: str) -> list[int]:
        """Sizes of the answers to GET requests for keys that contain something."""
        return [size for method, key, size in self.requests if method == "GET" and part in key]

    def keys(self, prefix: str) -> list[str]:
        """All keys below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sorted(item["Key"] for page in pages for item in page.get("Contents", ()))


@contextlib.contextmanager
def object_storage() -> Iterator[ObjectStorage]:
    """Starts the service in a thread; while it lasts, the environment leads S3 drivers to it."""
    boto3, moto, serving = map(import_module, ("boto3", "moto.server", "werkzeug.serving"))
    inner = moto.DomainDispatcherApplication(moto.create_backend_app)
    service = ObjectStorage("", None)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        method = environ["REQUEST_METHOD"]
        with service.working():
            if not service.allows(method):
                start_response("403 Forbidden", [])
                return [b"<Error><Code>AccessDenied</Code></Error>"]
            answer = list(inner(environ, start_response))
        service.requests.append((method, environ["PATH_INFO"], sum(map(len, answer))))
        return answer

    server = serving.make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    service.url = url = f"http://127.0.0.1:{server.server_port}"
    settings = {
        "AWS_ACCESS_KEY_ID": "loopback",
        "AWS_SECRET_ACCESS_KEY": "loopback",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = dict(os.environ)
    os.environ.update(settings)
    driver = import_module("s3fs").S3FileSystem
    driver.clear_instance_cache()  # it would lead to the service of an earlier module
    try:
        service.client = boto3.client("s3", endpoint_url=url)
        service.client.create_bucket(Bucket=BUCKET)
        yield service
    finally:
        os.environ.clear()
        os.environ.update(before)
        driver.clear_instance_cache()
        server.shutdown()
        thread.join()
