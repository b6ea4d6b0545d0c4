"""The package as people install it: built, installed into an empty environment, started in an empty folder."""

from __future__ import annotations

import re
import signal
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from agentcore_site import env
from agentcore_site.embedded.ports import free_port, wait_until
from tests.support.up import environment

pytestmark = pytest.mark.thorough(reason="a package is built, and a site of its own started")

STYLESHEET = re.compile(r'href="(/static/[^"]+\.css)"')


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], cwd=env.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    run(sys.executable, "-m", "pip", "wheel", *options, env.ROOT)
    [path] = tmp_path.glob("agentcore-*.whl")
    return path


def files(*folders: str) -> set[str]:
    found = (path for name in folders for path in (env.ROOT / name).rglob("*") if path.is_file())
    return {str(path.relative_to(env.ROOT)) for path in found if "__pycache__" not in path.parts}


def test_the_wheel_holds_all_files_of_packages_pages_and_schemas(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert files("agentcore_site", "budgets", "experiences", "training", "evaluation") <= held
    assert {
        f"agentcore_site/bundle/{name}" for name in {"manage.py"} | files("templates", "static", "docs/events")
    } <= held


def test_a_site_starts_from_the_wheel_in_an_empty_folder(wheel: Path, folder: Path) -> None:
    here = folder / "here"
    here.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    # The other packages are those of these tests: to fetch them again would try the index, not the wheel.
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    run(sys.executable, "-m", "pip", "--python", folder / "venv", "install", "-q", "--no-deps", "--no-index", wheel)
    port, given = free_port(0), environment(folder, XDG_DATA_HOME=str(folder / "data"))
    del given["DATA_DIR"]
    log = folder / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [str(folder / "venv" / "bin" / "agentcore"), "up", "--port", str(port)],
            cwd=here,
            env=given,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        address = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                return httpx.get(f"{address}/health/", timeout=5).json()["status"] == "ok"
            except (httpx.TransportError, ValueError):
                return False

        assert wait_until(ready, 240), log.read_text()[-3000:]
        page = httpx.get(f"{address}/sign-in/")
        assert page.status_code == 200 and "Sign in" in page.text
        assert httpx.get(f"{address}{STYLESHEET.findall(page.text)[0]}").status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert (folder / "data" / "agentcore" / "secrets").is_dir() and not list(here.iterdir())
