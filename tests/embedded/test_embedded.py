"""The embedded services: started as an unprivileged user, kept running, and clear when they can't be."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from agentcore_site import env
from agentcore_site.embedded import supervisor
from agentcore_site.embedded.management.commands import up
from agentcore_site.embedded.ports import free_port, is_free, wait_until
from agentcore_site.embedded.postgres import Postgres
from agentcore_site.embedded.stack import Stack
from agentcore_site.embedded.supervisor import Process, Supervisor
from agentcore_site.ids import uuid7
from agentcore_site.lib import service_paths
from agentcore_site.lib.service_paths import USERS, CannotStart, as_user, give, place_for, walkable
from agentcore_site.outbound.addresses import AddressVerdict, AllowList
from evaluation.warehouse.clickhouse.client import ClickHouseStore
from evaluation.warehouse.clickhouse.schema import schema_apply
from evaluation.warehouse.clickhouse.transports import HttpTransport, WarehouseRefused, WarehouseUnavailable
from experiences.rollouts.code.isolation import UNPRIVILEGED_ID
from tests.support.up import GIVEN, environment

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its services users of their own, and mounts")


def quiet(message: str) -> None: ...


def test_start_runs_both_services_and_keeps_their_data(folder: Path, own_services: None) -> None:
    stack = Stack(folder, quiet)
    stack.lock()
    urls = stack.start()
    try:
        with psycopg.connect(urls["database_owner_url"]) as connection:
            connection.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")
        with redis.Redis.from_url(urls["redis_url"]) as client:
            client.set("kept", "42")
        assert stat.S_IMODE((folder / "run" / "services.json").stat().st_mode) == 0o600
    finally:
        stack.stop()
    again = Stack(folder, quiet)
    again.lock()
    urls = again.start()
    try:
        with psycopg.connect(urls["database_owner_url"]) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (42,)
        with psycopg.connect(urls["database_url"]) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT n FROM kept")
        with redis.Redis.from_url(urls["redis_url"]) as client:
            assert client.get("kept") == b"42"
    finally:
        again.stop()


def test_neither_service_lets_anybody_in_without_the_password(folder: Path, own_services: None) -> None:
    stack = Stack(folder, quiet)
    urls = stack.start()
    try:
        port = urls["database_url"].rsplit(":", 1)[1].split("/")[0]
        for password in ("", "wrong"):
            for role in ("agentcore", "agentcore_app"):
                with pytest.raises(psycopg.OperationalError):
                    psycopg.connect(f"postgresql://{role}:{password}@127.0.0.1:{port}/agentcore")
        redis_port = urls["redis_url"].rsplit(":", 1)[1].split("/")[0]
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=int(redis_port)).ping()
    finally:
        stack.stop()


@pytest.mark.thorough(reason="a service, killed")
def test_the_warehouse_keeps_its_data_after_a_kill_and_refuses_strangers(folder: Path) -> None:
    pytest.importorskip("chdb", reason="the extra [warehouse] is not installed")
    stack = Stack(folder, quiet, any_port=True)
    try:
        url = stack.start_warehouse()
        store = ClickHouseStore(HttpTransport(url))
        schema_apply(store)
        store.insert("trainings", [f'{{"job_id": "{uuid7()}", "version": 1}}'])
        [warehouse] = stack.supervisor.running
        process = warehouse.handle
        process.kill()

        def counted() -> bool:
            stack.supervisor.watch()
            with contextlib.suppress(WarehouseUnavailable):
                return store.execute("SELECT count() AS n FROM warehouse_training") == [{"n": 1}]
            return False

        assert wait_until(counted, 20)
        stranger = ClickHouseStore(HttpTransport(url.replace("default:", "default:not-")))
        with pytest.raises(WarehouseRefused, match="Authentication"):
            stranger.execute("SELECT 1 AS one")
    finally:
        stack.stop()


def test_a_second_up_on_the_same_data_says_so(folder: Path) -> None:
    first = Stack(folder, quiet)
    first.lock()
    with pytest.raises(CannotStart, match=f"already up on .* \\(pid {os.getpid()}\\)"):
        Stack(folder, quiet).lock()
    first.stop()
    Stack(folder, quiet).lock()


@as_root
@pytest.mark.thorough(reason="each case starts a process that imports Django")
@pytest.mark.parametrize("given", ["no folder can be made", "its key can't be written", "read-only"])
def test_a_data_folder_that_can_not_be_written_is_one_sentence(folder: Path, given: str) -> None:
    where, more = {
        "no folder can be made": ("/proc/agentcore", {}),
        "its key can't be written": ("/sys/kernel", {"SECRET_KEY": ""}),
        "read-only": (str(folder), {}),
    }[given]
    asked = environment(Path(where), **more)
    command = [sys.executable, str(env.ROOT / "manage.py"), "up", "--port", str(free_port(0))]
    if given == "read-only":
        (folder / "secret_key").write_text("k" * 40)
        Stack(folder, quiet).lock()
        read_only = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && exec {shlex.join(command)}"
        command = ["unshare", "--mount", "sh", "-c", read_only]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = re.search(rf"{where}\S* can't be (made|written|used).* (Set DATA_DIR|Set it to|set DATA_DIR)", done.stderr)
    assert said, done.stderr


def test_a_folder_that_its_user_may_not_write_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcore_site.embedded.stack.os.access", lambda *_: False)
    with pytest.raises(CannotStart, match=f"{folder} can't be written. Make it writable"):
        Stack(folder, quiet)


@pytest.mark.thorough(reason="services of its own")
def test_a_busy_default_port_gives_way_and_is_named(
    folder: Path, own_services: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentcore_site.embedded import postgres

    said: list[str] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        busy = other.getsockname()[1]
        monkeypatch.setattr(postgres, "PREFERRED_PORT", busy)
        stack = Stack(folder, said.append)
        stack.start()
        stack.stop()
    assert any(f"port {busy} is busy; PostgreSQL takes" in line for line in said)


def test_data_of_another_major_version_are_left_alone(folder: Path) -> None:
    server = Postgres(place_for(folder), folder, free_port(0))
    server.data.mkdir(parents=True)
    (server.data / "PG_VERSION").write_text("13\n")
    with pytest.raises(CannotStart, match="written by PostgreSQL 13; this version brings PostgreSQL 18"):
        server.prepare()


def test_a_full_disk_is_a_clear_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(folder)._replace(free=1000)
    monkeypatch.setattr(service_paths.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CannotStart, match="is full"):
        place_for(folder)


def readable(user: int, folder: Path) -> list[str]:
    """The paths of a folder that ``user`` can read, where it knows all of them."""
    paths = [f"{path}/" if path.is_dir() else str(path) for path in (folder, *folder.rglob("*"))]
    assert len(paths) > 1
    look = 'for path; do if [ -r "$path" ]; then echo "$path"; fi; done'
    command = ["/bin/sh", "-c", look, "sh", *paths]
    done = subprocess.run(command, **as_user(user), capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@as_root
def test_the_embedded_services_of_root_open_no_folder_of_a_person(folder: Path, own_services: None) -> None:
    closed = folder / "home"
    closed.mkdir(mode=0o700)
    stack = Stack(closed / "data", quiet)
    urls = stack.start()
    try:
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700 and walkable(stack.place.folder)
        with psycopg.connect(urls["database_url"]) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        stack.stop()
        shutil.rmtree(stack.place.folder, ignore_errors=True)


@pytest.mark.thorough(reason="services of its own")
@as_root
def test_each_service_of_root_has_a_user_of_its_own_also_on_data_of_an_earlier_release(
    folder: Path, own_services: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTS", "1")
    earlier, nobody = Stack(folder, quiet, any_port=True), pwd.getpwnam("nobody").pw_uid
    earlier.start()
    earlier.stop()
    for name in USERS:
        give(earlier.place.folder / name, nobody)
    stack = Stack(folder, quiet, any_port=True)
    urls = stack.start()
    try:
        with psycopg.connect(urls["database_url"]) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        for running in stack.supervisor.running:
            lines = dict(
                line.split(":", 1)
                for line in Path(f"/proc/{running.handle.pid}/status").read_text().splitlines()
                if ":" in line
            )
            own = [str(USERS[running.process.name])] * 4
            assert lines["Uid"].split() == lines["Gid"].split() == own and not lines["Groups"].split()
        others = {UNPRIVILEGED_ID, nobody, *USERS.values()}
        for name, own_user in USERS.items():
            data = stack.place.folder / name
            for user in others - {own_user}:
                assert readable(user, data) == [], (name, user)
        assert str(urls["nats_accounts_file"]) in readable(USERS["nats"], stack.place.folder / "nats")
    finally:
        stack.stop()


@as_root
def test_a_link_in_a_folder_that_is_given_away_is_not_followed(folder: Path) -> None:
    mine = folder / "mine"
    mine.write_text("root's")
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "data" / "deep" / "link").symlink_to(mine)
    give(folder / "data", 65521)
    assert mine.stat().st_uid == 0
    assert {path.lstat().st_uid for path in (folder / "data").rglob("*")} == {65521}


def test_a_process_that_dies_is_restarted_with_growing_delays(folder: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(folder, said.append)
    supervisor.start(Process("dies", ["/bin/sh", "-c", "exit 3"]))
    began = time.monotonic()
    deadline = began + 20  # a busy machine needs longer than the delays, which are what is promised
    while sum("ended with 3" in line for line in said) < 4 and time.monotonic() < deadline:
        supervisor.watch()
        time.sleep(0.02)
    supervisor.stop()
    delays = [line.split(" in ")[1] for line in said if "ended with 3" in line]
    assert delays[:4] == ["0.2 s", "0.4 s", "0.8 s", "1.6 s"]
    assert time.monotonic() - began >= 0.2 + 0.4 + 0.8


@pytest.mark.thorough(reason="processes are killed")
@pytest.mark.parametrize("command", ["exec sleep 60", "trap 'exit 0' TERM; touch ready; while :; do sleep 0.02; done"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_ended_from_outside_is_restarted_at_once_each_time(
    folder: Path, command: str, number: signal.Signals
) -> None:
    said: list[str] = []
    sign = folder / "ready"
    ready = sign.exists if "trap" in command else None
    supervisor = Supervisor(folder, said.append)
    supervisor.start(Process("ended", ["/bin/sh", "-c", command], ready, cwd=str(folder)))
    for _ in range(4):
        supervisor.watch()
        first = supervisor.running[0].handle
        sign.unlink(missing_ok=True)
        os.kill(first.pid, number)
        first.wait(5)
        assert wait_until(lambda one=first: supervisor.watch() or supervisor.running[0].handle is not one, 5.0)
        assert wait_until(lambda: ready is None or ready(), 5.0, every=0.01)
    supervisor.stop()
    assert [line.partition(" in ")[2] for line in said] == ["0.0 s"] * 4


@pytest.mark.parametrize("command", ["exit 0", "kill -KILL $$"])
def test_a_process_that_ends_before_becoming_ready_is_restarted_with_growing_delays(folder: Path, command: str) -> None:
    said: list[str] = []
    supervisor = Supervisor(folder, said.append)
    with pytest.raises(CannotStart):
        supervisor.start(Process("early", ["/bin/sh", "-c", command], ready=lambda: False, ready_seconds=5.0))
    assert wait_until(lambda: supervisor.watch() or len(said) >= 3, 20.0, every=0.02)
    supervisor.stop()
    assert [line.partition(" in ")[2] for line in said[:3]] == ["0.2 s", "0.4 s", "0.8 s"]


TURNS = """
import os, subprocess, sys, time
child = subprocess.Popen(["/bin/sleep", "60"])
print(child.pid, flush=True)
while True:
    os.utime(os.environ["HEARTBEAT_FILE"])
    time.sleep(0.05)
"""


def test_a_hung_process_is_killed_and_a_machines_sleep_is_no_hang(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HUNG_SECONDS", 1.0)
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "ASLEEP_SECONDS", 0.5)
    said: list[str] = []
    keeper = Supervisor(folder, said.append)
    keeper.start(Process("turns", [sys.executable, "-c", TURNS], heartbeats=True))
    first = keeper.running[0].handle

    def watched_until(done: Callable[[], bool]) -> bool:
        return wait_until(lambda: keeper.watch() or done(), 15.0, every=0.02)

    try:
        assert watched_until(lambda: keeper.states()[0].silent_for is not None)
        child = int((folder / "turns.log").read_text().split()[0])
        os.kill(child, signal.SIGSTOP)
        assert watched_until(lambda: any("a child of turns" in line for line in said))
        first.send_signal(signal.SIGSTOP)
        keeper.watch()
        time.sleep(1.5)  # unseen, as when the machine sleeps
        keeper.watch()
        assert first.poll() is None
        assert watched_until(lambda: first.poll() is not None)
        assert watched_until(lambda: keeper.states()[0].pid not in (0, first.pid))
        assert keeper.states()[0].restarts == 1
    finally:
        keeper.stop()


@pytest.mark.thorough(reason="a service, killed")
def test_a_killed_valkey_is_back_with_its_data(folder: Path, own_services: None) -> None:
    stack = Stack(folder, quiet)
    urls = stack.start()
    try:
        client = redis.Redis.from_url(urls["redis_url"], socket_connect_timeout=1)
        client.set("kept", "42")
        time.sleep(1.2)  # appended to disk once a second
        valkey = stack.supervisor.running[1]
        process, handle = valkey.process, valkey.handle
        assert process.name == "valkey"
        handle.kill()
        handle.wait()

        def back() -> bool:
            stack.supervisor.watch()
            try:
                return bool(client.get("kept") == b"42")
            except redis.RedisError:
                return False

        assert wait_until(back, 10), stack.supervisor.tail("valkey")
    finally:
        stack.stop()


@pytest.mark.thorough(reason="another program, killed")
def test_nothing_is_left_behind_when_the_supervisor_is_killed(folder: Path, own_services: None) -> None:
    script = (
        "import sys, time; from pathlib import Path; from agentcore_site.embedded.stack import Stack\n"
        "stack = Stack(Path(sys.argv[1]), print); stack.lock(); stack.start()\n"
        "print(*[kept.handle.pid for kept in stack.supervisor.running], flush=True); time.sleep(60)"
    )
    environment = {name: value for name, value in os.environ.items() if name not in GIVEN}
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], cwd=env.ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pids: list[int] = []
    for line in parent.stdout:
        if line.strip().replace(" ", "").isdigit():
            pids = [int(pid) for pid in line.split()]
            break
    assert len(pids) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), 15)


def test_settings_come_from_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 40 + "\n")
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.setenv("SECRET_KEY_FILE", str(secret))
    assert env.secret_key() == "x" * 40
    monkeypatch.setenv("SECRET_KEY", "short")
    with pytest.raises(env.BadEnvironment, match="at least 32"):
        env.secret_key()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("PORT", "eight", "whole number"), ("PORT", "70000", "between"), ("DEBUG", "maybe", "1 or 0")],
)
def test_a_bad_setting_names_itself(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(env.BadEnvironment, match=f"{name} must be .*{message}"):
        if name == "PORT":
            env.integer(name, 0, low=0, high=65535)
        else:
            env.boolean(name)


def test_a_database_url_keeps_escaped_characters() -> None:
    found = env.database_settings("postgresql://u%40x:p%2Fw@db.example:6543/agent%20core")
    assert (found["USER"], found["PASSWORD"], found["HOST"], found["PORT"], found["NAME"]) == (
        "u@x",
        "p/w",
        "db.example",
        "6543",
        "agent core",
    )
    with pytest.raises(env.BadEnvironment, match="postgresql://"):
        env.database_settings("mysql://x/y")


def test_up_allows_calls_to_loopback_unless_a_setting_forbids_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model server on the same machine works at once; a process that is started otherwise allows nothing."""
    for name in ("OUTBOUND_ALLOW", "OUTBOUND_ALLOW_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert env.listed("OUTBOUND_ALLOW") == []
    up._allow_loopback()
    loopback = AllowList.of(env.listed("OUTBOUND_ALLOW"))
    assert all(loopback.judge(ip_address(one)) is AddressVerdict.CALLED for one in ("127.0.0.1", "::1"))
    assert loopback.has_host("localhost") and loopback.judge(ip_address("10.0.0.1")) is AddressVerdict.PRIVATE
    monkeypatch.setenv("OUTBOUND_ALLOW", "")
    up._allow_loopback()
    assert env.listed("OUTBOUND_ALLOW") == []


@pytest.mark.parametrize(
    ("name", "value"), [("OUTBOUND_ALLOW", "10.0.0.0/99"), ("OUTBOUND_CA_FILE", "/nowhere.pem"), ("LLM_BASE_URL", "x")]
)
@pytest.mark.thorough(reason="each case starts a process that imports Django")
def test_an_outbound_setting_that_can_not_be_used_stops_the_start(name: str, value: str) -> None:
    started = subprocess.run(
        [sys.executable, "-c", "import django; django.setup()"],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "agentcore_site.settings", name: value},
        capture_output=True,
        text=True,
    )
    assert started.returncode and f"{name}: " in started.stderr


def test_proxies_of_http_are_taken_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.example.org")
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy.example:1080")
    assert env.proxies() == {"https": "http://proxy.example:3128", "no": "localhost,.example.org"}
    monkeypatch.setenv("HTTP_PROXY", "socks5://proxy.example:1080")
    with pytest.raises(env.BadEnvironment, match="HTTP_PROXY must be http"):
        env.proxies()


def test_two_that_start_at_once_choose_different_ports() -> None:
    """Seconds lie between the choice of a port and its server's start: PostgreSQL makes its data folder in them."""
    # Below the ports that the system gives to connections: those of the tests beside this one come and go.
    preferred = next(port for port in random.sample(range(20_000, 30_000), 100) if is_free(port))
    chosen = "from agentcore_site.embedded.ports import free_port; print(free_port({}), flush=True); input()"
    command = [sys.executable, "-c", chosen.format(preferred)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:
        ports = [int(process.stdout.readline()) for process in (one, other) if process.stdout]
        assert len(set(ports)) == 2 and preferred in ports
        one.communicate("\n", timeout=20)
        other.communicate("\n", timeout=20)
    with subprocess.Popen(command, **pipes) as later:
        assert later.stdout and int(later.stdout.readline()) == preferred
        later.communicate("\n", timeout=20)
