"""A server of S3's protocol on a socket, with an empty bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

BUCKET: Final = "agentcore-test"


@contextmanager
def s3_server(environment: pytest.MonkeyPatch) -> Iterator[str]:
    """Yields its address. Credentials are set in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.setenv(name, "of-the-test")
    environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        httpx.post(f"{address}/moto-api/reset").raise_for_status()  # what it holds is of the process
        boto3.client("s3", endpoint_url=address).create_bucket(Bucket=BUCKET)
        yield address
    finally:
        server.stop()
