"""The image's steps done in a bare folder by a user without root, and each role started by the image's own command."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import httpx
import pytest
import yaml

from agentcore_site import env
from agentcore_site.embedded.ports import free_port
from agentcore_site.lib.service_paths import walkable
from tests.support.dockerfile import Stage, built
from tests.support.workers import environment, eventually

pytestmark = [
    pytest.mark.thorough(reason="a second program, or a start of the product"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow(reason="the image's packages are installed, and each role is started"),
]
DOCKER = env.ROOT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
USER = {"user": 10001, "group": 10001, "extra_groups": []} if os.geteuid() == 0 else {}
GRACE = 60


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for all processes of a run: the first that comes makes it while others wait, the last one takes it away."""
    base = Path(sys.base_prefix, "bin", "python3").resolve()
    python = base if not USER or walkable(base.parent) else Path("/usr/bin/python3")
    memory = Path("/dev/shm")  # some 60,000 files, which a disk takes and gives back slowly
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 2**30
    own = tmp_path_factory.getbasetemp()
    run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with _file(run, "users") as users:
        with _file(run, "making") as made:  # one at a time makes it, and takes it away
            if not (known := _read(made)):
                folder = Path(tempfile.mkdtemp(prefix="agentcore-image-", dir=memory if roomy else None))
                folder.chmod(0o711)
                stage = built(DOCKER / "Dockerfile", env.ROOT, folder, str(python), USER)
                made.write(known := pickle.dumps((folder, stage)))
                made.flush()
            fcntl.flock(users, fcntl.LOCK_SH)
        folder, stage = pickle.loads(known)
        yield stage
        with _file(run, "making") as made, suppress(BlockingIOError):  # another process still uses it
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            made.truncate(0)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _file(run: Path, name: str) -> Iterator[IO[bytes]]:
    """A small file that the processes of a run share. ``making`` is one process's in the block."""
    with open(run / f"image-{name}", "a+b") as file:
        if name == "making":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


@pytest.fixture
def shared() -> Iterator[dict[str, str]]:
    """The files that compose gives to each role, with the services of the tests."""
    folder = Path(tempfile.mkdtemp(prefix="agentcore-secrets-"))
    folder.chmod(0o755)
    values = environment() | {"SECRET_KEY": "a key that all hosts share, in a file", "METRICS_TOKEN": "a token"}
    names = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "METRICS_TOKEN")
    for name in names:
        (folder / name).write_text(values[name] + "\n", encoding="utf-8")
    yield {f"{name}_FILE": str(folder / name) for name in names} | {"OMP_NUM_THREADS": "1", "PRIVATE_SITE": "1"}
    shutil.rmtree(folder)


def test_the_lock_lists_the_packages_of_the_image(image: Stage) -> None:
    listed = json.loads(image.place("sbom.cdx.json").read_text(encoding="utf-8"))
    values = {f"{one['name']}=={one['version']}" for one in listed["components"]}
    lock = (DOCKER / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert listed["bomFormat"] == "CycloneDX"
    assert values == {line.split()[0].split("[")[0] for line in lock if "==" in line and not line.startswith(" ")}


def test_the_image_runs_as_a_user_by_number_and_writes_only_what_is_named(image: Stage) -> None:
    assert image.user == "10001:10001"
    assert COMPOSE["services"]["worker"]["read_only"] and image.environment["DATA_DIR"] == str(image.place("/data"))


@pytest.mark.parametrize("role", ["web", "worker", "beat", "events"])
def test_each_role_starts_is_healthy_and_stops(
    image: Stage, shared: dict[str, str], role: str, request: pytest.FixtureRequest
) -> None:
    more = shared | {"PORT": str(free_port(0)), "METRICS_PORT": str(free_port(0))}
    if role == "events":
        more["NATS_URL"] = request.getfixturevalue("nats_server").url()
    command = image.entrypoint + COMPOSE["services"][role].get("command", image.command)
    process = image.run(command, USER, **more)
    try:
        health = lambda: image.run(image.health, USER, **more).wait(10) == 0  # noqa: E731
        eventually(lambda: process.poll() is not None or health(), seconds=90, why=f"{role} is healthy")
        assert process.poll() is None, process.communicate()[0][-3000:]
        metrics, token = f"http://127.0.0.1:{more['METRICS_PORT']}/metrics", {"Authorization": "Bearer a token"}
        there = lambda: "agent_rl_training_samples_count 0.0" in httpx.get(metrics, headers=token).text  # noqa: E731
        eventually(there, seconds=60, why=f"{role} names what it counts")
        assert httpx.get(metrics).status_code == 401
        if role == "web":  # by an address that is none of ALLOWED_HOSTS, as probes ask
            ready = httpx.get(f"http://127.0.0.1:{more['PORT']}/health/ready", headers={"Host": "10.1.2.3:8000"})
            assert ready.json() == {"status": "ok"}
            documents = httpx.get(f"http://127.0.0.1:{more['PORT']}/docs/concepts/")
            assert documents.status_code == 200 and "<h1" in documents.text
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=GRACE)
    assert process.returncode == 0, output[-3000:]
    assert "was killed" not in output


def test_the_step_that_migrates_is_the_images_own(image: Stage, shared: dict[str, str]) -> None:
    for step in (
        COMPOSE["services"]["migrate"]["entrypoint"],
        next(yaml.safe_load_all((DOCKER / "k8s/base/migrate.yaml").read_text()))["spec"]["template"]["spec"][
            "containers"
        ][0]["command"],
    ):
        done = image.run(step, USER, **shared)
        output, _ = done.communicate(timeout=GRACE)
        assert done.returncode == 0, output[-3000:]


def test_the_secrets_that_compose_reads_are_made_once_and_belong_together(tmp_path: Path) -> None:
    shutil.copy(DOCKER / "secrets.sh", tmp_path)
    for _ in range(2):
        subprocess.run([tmp_path / "secrets.sh"], check=True)
        read = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "secrets").iterdir()}
    assert {f"secrets/{name}" for name in read} == {one["file"] for one in COMPOSE["secrets"].values()}
    password = read["database_url"].split(":")[2].split("@")[0]
    assert password in read["pgbouncer_users"] and password not in read["database_owner_url"]
    assert read["redis_url"].split(":")[2].split("@")[0] in read["valkey_conf"]
    assert (
        read["s3_credentials"].split("= ")[-1].strip()
        == json.loads(read["s3_identities"])["identities"][0]["credentials"][0]["secretKey"]
    )
