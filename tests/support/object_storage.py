"""An S3 service on loopback, and what was asked of it."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

BUCKET = "stores"


@dataclass
class ObjectStorage:
    """A running service.

    Attributes:
        url: of its API.
        requests: (method, key, bytes of the answer's body) of each request so far.
    """

    url: str
    client: Any
    requests: list[tuple[str, str, int]] = field(default_factory=list)

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
    requests: list[tuple[str, str, int]] = []

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        answer = list(inner(environ, start_response))
        requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], sum(map(len, answer))))
        return answer

    server = serving.make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
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
        client = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket=BUCKET)
        yield ObjectStorage(url, client, requests)
    finally:
        os.environ.clear()
        os.environ.update(before)
        driver.clear_instance_cache()
        server.shutdown()
        thread.join()
