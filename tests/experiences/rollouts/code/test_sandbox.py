"""The sandbox: what hostile code can't do in it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiences.rollouts.code import sandbox

pytestmark = pytest.mark.skipif(bool(sandbox.unavailable()), reason=f"no isolation here: {sandbox.unavailable()}")


def tried(code: str, seconds: int = 5) -> sandbox.Finished:
    return sandbox.run([sandbox.python(), "-I", "-S", "-c", code], "", seconds)


def refused(statement: str) -> str:
    """The exception that ``statement`` raises inside."""
    indented = statement.replace("\n", "\n    ")
    done = tried(f"try:\n    {indented}\n    print('DONE')\nexcept BaseException as error:\n    print(repr(error))")
    assert done.code == 0, done
    return done.output


def test_sandbox_reaches_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        assert "OSError" in refused(f"import socket; socket.create_connection({place!r}, 2)")
    assert "OSError" in refused("import socket; socket.create_connection(('1.1.1.1', 53), 2)")


def test_sandbox_sees_no_file_of_the_host_and_writes_none(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    assert "FileNotFoundError" in refused(f"open({str(secret)!r}).read()")
    assert "FileNotFoundError" in refused("open('/etc/passwd').read()")
    assert "FileNotFoundError" in refused(f"open({__file__!r}).read()")
    for folder in ("/usr", "/", os.path.realpath(sys.prefix)):
        assert "Read-only file system" in refused(f"open({folder + '/written'!r}, 'w')")
    assert refused("open('/tmp/own', 'w').write('kept')").strip() == "DONE"
    assert not Path("/tmp/own").exists()


def test_sandbox_has_no_variable_of_the_process_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    assert "hunter2" not in refused("import os; print(dict(os.environ))")


def test_sandbox_sees_and_stops_no_process_but_its_own() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        assert "ProcessLookupError" in refused(f"import os; os.kill({other.pid}, 9)")
        assert other.poll() is None
        other.kill()


def test_sandbox_has_no_right_and_can_get_none() -> None:
    assert refused("import os; print(os.getuid())").startswith("1000")
    assert "OSError" in refused("import os; os.setuid(0)")  # there is no such user inside
    libc = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
    for call in ("unshare(0x10000000)", "umount2(b'/tmp', 2)", "sethostname(b'x', 1)", "ptrace(16, 1, 0, 0)"):
        assert refused(f"{libc}print(libc.{call})").startswith("-1"), call


@pytest.mark.parametrize(
    ("statement", "limit"),
    [
        ("bytearray(1 << 30)", "MemoryError"),
        ("open('/tmp/large', 'wb').write(bytes(8 << 20))", "File too large"),
        ("[open('/tmp/' + str(n), 'wb').write(bytes(3 << 20)) for n in range(9)]", "No space left"),
        ("[open('/dev/null') for _ in range(100)]", "Too many open files"),
        ("import os, time\nfor _ in range(50):\n    if os.fork() == 0: time.sleep(9)", "BlockingIOError"),
    ],
)
def test_sandbox_has_so_much_and_no_more(statement: str, limit: str) -> None:
    assert limit in refused(statement)


@pytest.mark.parametrize(
    "forever",
    [
        "while True: pass",
        "import os, time\nif os.fork() == 0: os.setsid()\nos.write(1, str(os.getpid()).encode())\ntime.sleep(99)",
    ],
    ids=["computes", "sleeps in a session of its own"],
)
def test_sandbox_ends_with_its_time_and_leaves_no_process(forever: str) -> None:
    began = time.monotonic()
    mark = f"mark-{time.time_ns()}"
    done = tried(f"# {mark}\n{forever}", seconds=1)
    assert done.timed_out and time.monotonic() - began < 3
    deadline = time.monotonic() + 2
    while mark in (running := subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout):
        assert time.monotonic() < deadline, running
        time.sleep(0.02)


def test_long_output_is_cut() -> None:
    done = tried("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    assert len(done.output) == sandbox.OUTPUT_BYTES and done.code != 0
