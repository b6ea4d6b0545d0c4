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

ROOT = Path(__file__).parents[4]
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


def test_sandbox_has_no_variable_of_its_parent_process(monkeypatch: pytest.MonkeyPatch) -> None:
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


LIBC = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
PRINTED = "\nimport errno; print(found, errno.errorcode.get(ctypes.get_errno()))"
KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine, 0)
ADD_KEY = {"x86_64": 248, "aarch64": 217}.get(os.uname().machine, 0)
SESSION = -3  # keyring of the session, as the kernel numbers it


@pytest.mark.parametrize(
    "attempt",
    [
        f"libc.syscall({KEYCTL}, 0, {SESSION}, 1)",
        f"libc.syscall({ADD_KEY}, b'user', b'a', b'b', 1, {SESSION})",
        "libc.shmget(0, 1 << 20, 0o1600)",
        "libc.msgget(0, 0o1600)",
        "libc.memfd_create(b'a', 0)",
        "libc.socket(40, 1, 0)",
        "libc.socket(16, 3, 0)",
        "libc.syscall(425, 8, bytes(120))",
    ],
    ids=["keyring", "key", "SysV memory", "SysV queue", "memfd", "AF_VSOCK", "AF_NETLINK", "io_uring"],
)
def test_sandbox_refuses_what_no_namespace_covers(attempt: str) -> None:
    assert refused(f"{LIBC}found = {attempt}{PRINTED}").splitlines()[0] == "-1 EPERM"


HELD = f"""
import ctypes
from experiences.rollouts.code import sandbox
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall({KEYCTL}, 1, None) > 0
assert libc.syscall({ADD_KEY}, b"user", b"secret", b"hunter2", 7, {SESSION}) > 0
sandbox.PROGRAM = PROGRAM
program = "import ctypes; print(ctypes.CDLL(None).syscall({KEYCTL}, 10, {SESSION}, b'user', b'secret', 0))"
print(sandbox.run([sandbox.python(), "-I", "-S", "-c", program], "", 5).output)
"""


def test_sandbox_has_a_keyring_of_its_own(tmp_path: Path) -> None:
    """Also without the filter: the program below is the real one but for that line."""
    unfiltered = tmp_path / "isolation.py"
    unfiltered.write_text(sandbox.PROGRAM.read_text().replace("    _refuse_calls()\n", ""))
    code = HELD.replace("= PROGRAM", f"= {str(unfiltered)!r}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    if "AssertionError" in done.stderr:
        pytest.skip("the kernel gives this process no keyring")
    assert done.stdout.strip() == "-1", done.stderr


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
