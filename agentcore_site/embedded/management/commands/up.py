"""``manage.py up``: everything that AgentCore needs, started in order, kept running, stopped in order."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from agentcore_site.checks import MEND, plain_http
from agentcore_site.embedded.management.commands.migrate import REFUSED
from agentcore_site.embedded.model_servers import ModelServers, server_process
from agentcore_site.embedded.ports import free_port, is_free, listener
from agentcore_site.embedded.reporting import Reporter
from agentcore_site.embedded.rolling import RollingRestart, progress_path
from agentcore_site.embedded.stack import Stack
from agentcore_site.embedded.status_server import StatusServer
from agentcore_site.embedded.supervisor import STOP_SECONDS, Process, Supervisor
from agentcore_site.lib.connection_handover import CHANNEL, GATEWAY, LEAVE_SECONDS, channel_ends
from agentcore_site.lib.host_ids import HOST_ID_VARIABLE, folder_name, host_id, process_host_id
from agentcore_site.lib.own_models import RANDOM
from agentcore_site.lib.queues import JOB_QUEUES, SHORT_TASKS
from agentcore_site.lib.service_paths import CannotStart

DEFAULT_PORT = 8000
LOCAL = "127.0.0.1"
ALL = "all"
ROLES = {
    ALL: frozenset({"web", "gateway", "worker", "helper", "beat", "events"}),
    "web": frozenset({"web", "gateway"}),
    "worker": frozenset({"worker", "helper"}),
    "beat": frozenset({"beat"}),
    "events": frozenset({"events"}),
}
NEEDED = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY")  # of a role of its own
MIGRATION_SECONDS = 600
READY_SECONDS = 180.0  # of a process of ours, on a machine that has other work
WEIGHTS_PORT = 8300
DEMOS_THAT_END = ("demo_loop", "demo_ace")  # the site ends with them
DEMOS_OF_A_SITE = (*DEMOS_THAT_END, "demo_model")  # commands that call the site
DEMOS = ("demo", *DEMOS_OF_A_SITE)
LOOPBACK = "127.0.0.0/8,::1/128,localhost"


class Command(BaseCommand):
    help = (
        "Start PostgreSQL and Valkey (unless DATABASE_URL and REDIS_URL are set), web, workers and beat; with EVENTS=1"
        " NATS (unless NATS_URL is set) and the feedback loop; with WAREHOUSE=1 a warehouse (unless CLICKHOUSE_URL is"
        " set); with WEIGHTS=1, or the folder of a model, a model server."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--role",
            choices=sorted(ROLES),
            default=ALL,
            help=f"what of it runs here: {', '.join(sorted(ROLES))} (default: {ALL}). Another than {ALL} starts no"
            " service, and needs the address of each and the SECRET_KEY of all hosts.",
        )
        parser.add_argument("--bind", default=LOCAL, help=f"address that the console listens on (default: {LOCAL})")
        parser.add_argument("--port", type=int, help=f"port of the console (PORT, else {DEFAULT_PORT})")
        parser.add_argument("--workers", type=int, help="processes that run jobs (default: one a core, at most 4)")
        parser.add_argument("--demo", action="store_true", help="make the demo people and agent, train it, follow")
        parser.add_argument(
            "--demo-loop", action="store_true", help="let simulated users make an agent better, then stop"
        )
        parser.add_argument(
            "--demo-ace", action="store_true", help="let a simulated service evolve a playbook, then stop"
        )
        parser.add_argument(
            "--demo-model",
            action="store_true",
            help="train the language model of the site's model server (WEIGHTS), prove it and release it",
        )
        parser.add_argument("--once", action="store_true", help="stop when the demo is done")
        parser.add_argument("--seed", type=int, help="seed of the demo's run (SEED)")

    def handle(self, *args: Any, **options: Any) -> None:
        if "web" in ROLES[options["role"]] and (reason := plain_http(options["bind"])):
            raise CommandError(f"{reason} {MEND}")
        stopping = self._stopping = threading.Event()
        self._reporter: Reporter | None = None
        self._model_servers: ModelServers | None = None
        if options["demo_model"] and not env.text("WEIGHTS"):
            raise CommandError("--demo-model trains the model of WEIGHTS: set it, or run make run MODEL=1.")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
        self._restarts: RollingRestart | None = None
        self._terminals = _terminals()
        signal.signal(signal.SIGHUP, lambda *_: self._hang_up())
        started = time.monotonic()
        role = options["role"]
        if options["bind"] == LOCAL:
            _allow_loopback()
        try:
            if role != ALL:
                _check_environment(role, options)
            stack = Stack(env.data_dir(), self.say, role="" if role == ALL else role)
            stack.lock()
            status_server = _status_server(stack)
        except (CannotStart, env.BadEnvironment) as error:
            raise CommandError(str(error)) from error
        last_line, status = "", 0
        try:
            port = self._start(stack, options)
            if status_server:
                status_server.ready = True
            self.say(f"ready after {time.monotonic() - started:.1f} s")
            if "web" in ROLES[role]:
                scheme = "https" if settings.TLS_CERT_FILE else "http"
                here = f"{scheme}://{options['bind']}:{port}"
                self.say(f"console: {settings.PUBLIC_URL or here}{settings.SUB_PATH}/", sys.stdout)
                if role == ALL and not any(options[one] for one in DEMOS):
                    # Beside the watch over the processes, which must not wait for another program.
                    threading.Thread(target=self._say_first_account, args=(here,), daemon=True).start()
            last_line, status = self._stay(stack, options, stopping, port)
        except (CannotStart, env.BadEnvironment) as error:
            raise CommandError(str(error)) from error
        finally:
            self.say("stopping")
            if self._model_servers is not None:
                self._model_servers.stop()
            if self._reporter is not None:
                self._reporter.stop()
            if status_server:
                status_server.stop()
            stack.stop()
            shutil.rmtree(_metrics_folder(stack), ignore_errors=True)
            self.say("stopped; the data stay in " + str(stack.data_dir))
        if last_line:
            self.stdout.write(last_line)
            self.stdout.flush()
        if status:
            sys.exit(status)

    def say(self, message: str, stream: Any = None) -> None:
        print(f"[up] {message}", file=stream or sys.stderr, flush=True)

    def _say_first_account(self, site: str) -> None:
        """Prints the link to the first account where there is none."""
        done = self._ran("first_account")
        if done.returncode == 0:
            link = done.stdout.strip()
            link = f"{site}{link}" if link.startswith("/") else link
            self.say(f"no account yet; make the first one, within a day: {link}", sys.stdout)

    def _hang_up(self) -> None:
        """SIGHUP restarts the processes; from a terminal that was closed it stops the site."""
        if self._terminals and not _terminals():
            self._stopping.set()
        elif self._restarts:
            self._restarts.ask()

    # -- starting --------------------------------------------------------------------------------------------------

    def _start(self, stack: Stack, options: dict[str, Any]) -> int:
        names = ROLES[options["role"]]
        port = self._web_port(options) if "web" in names else 0
        urls = stack.start()
        if options["role"] == ALL:
            self._prepare(warehouse="clickhouse_url" in urls)
        else:
            self._await_migrations()
            self._collect(names)
        if not urls.get("nats_url"):
            names = names - {"events"}
        place = host_id(stack.data_dir) if options["role"] == ALL and settings.MODEL_SERVERS else ""
        os.environ["MODEL_SERVER_PLACE"] = place  # for all processes started here
        ours = [
            process
            for process in self._processes(stack, port, options["workers"], options["bind"])
            if process.name.partition("-")[0] in names
        ]
        for process in ours:
            process.ready_seconds = READY_SECONDS
            stack.supervisor.start(process)
        if options["role"] == ALL and (model := env.text("WEIGHTS")):
            stack.supervisor.start(self._model_server(stack, self._model(model)))
        if place:
            own = Supervisor(stack.supervisor.log_folder, self.say, to_stdout=stack.supervisor.to_stdout)
            self._model_servers = ModelServers(urls["database_url"], stack.data_dir, place, own)
            self._model_servers.start()
        self._reporter = Reporter(urls["database_url"], stack.data_dir, stack.role, stack.supervisor.states)
        self._reporter.start()
        self._restarts = RollingRestart(
            stack.supervisor,
            progress_path(stack.run_folder, stack.role),
            [process.name for process in ours],
            partial(self._prepare_again, options["role"], names, warehouse="clickhouse_url" in urls),
            self.say,
        )
        return port

    def _model(self, wanted: str) -> str:
        """The folder of a model that is set up by then. Raises CannotStart: it can't be."""
        if wanted == "1":
            return RANDOM
        if not Path(wanted).is_dir():
            self.say("sets up the language model; at the first time it is downloaded and converted")
            if (done := self._ran("model_setup", wanted)).returncode:
                raise _failed(done)
            wanted = done.stdout.strip().splitlines()[-1]
        return wanted

    def _model_server(self, stack: Stack, model: str) -> Process:
        """Starts a model server (docs/weights.md), whose address the demo gets. torch loads in some ten seconds."""
        port, key = free_port(WEIGHTS_PORT), stack.secrets / "weights_token"
        known = {
            "WEIGHTS_URL": f"http://127.0.0.1:{port}/v1",
            "WEIGHTS_NAME": Path(model).name,
            "WEIGHTS_TOKEN": env.kept_secret(key),
        }
        os.environ.update(known)
        self.say(f"model server: {known['WEIGHTS_URL']} (its key: {key})")
        return server_process("weights", model, port, known["WEIGHTS_TOKEN"])

    def _web_port(self, options: dict[str, Any]) -> int:
        """A port that was set must be free; the default port may be replaced."""
        asked = options["port"] or env.integer("PORT", 0, low=0, high=65535)
        if asked:
            if not is_free(asked):
                raise CannotStart(f"Port {asked} is taken by another program. Stop it, or set PORT to another.")
            return int(asked)
        port = free_port(DEFAULT_PORT)
        if port != DEFAULT_PORT:
            self.say(f"port {DEFAULT_PORT} is busy; the console takes {port}")
        return port

    def _prepare(self, *, warehouse: bool) -> None:
        """Migrations, prices, static files, tables of the warehouse: in processes of their own, since this one was set
        up without a database. They may take long, and give up a silent database by themselves."""
        self._run("migrate", "--no-input", "--verbosity", "0")
        self._run("load_prices", "--verbosity", "0")
        self._run("collectstatic", "--no-input", "--verbosity", "0")
        if warehouse:
            self._run("warehouse_setup")

    def _prepare_again(self, role: str, names: frozenset[str], *, warehouse: bool) -> None:
        """The steps before a restart, with the release that is installed now. Migrations run beside the processes of
        the release before, which they leave able to work (docs/operations.md).

        Raises:
            CannotStart: one failed, or this role has to wait for a migration.
        """
        if role == ALL:
            self._prepare(warehouse=warehouse)
            return
        done = self._ran("migrate", "--check", "--skip-checks", "--verbosity", "0")
        if done.returncode == REFUSED:
            raise _failed(done)
        if done.returncode:
            raise CannotStart("The database is not migrated: run manage.py migrate as its owner, then restart again.")
        self._collect(names)

    def _collect(self, names: frozenset[str]) -> None:
        """Raises CannotStart."""
        if "web" in names:
            self._run("collectstatic", "--no-input", "--verbosity", "0")

    def _run(self, *command: str) -> None:
        """Raises CannotStart."""
        if (done := self._ran(*command)).returncode:
            raise _failed(done)

    def _ran(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*_manage(), *command], capture_output=True, text=True, env=_environment())

    def _await_migrations(self) -> None:
        """Waits until another host, or a separate step, has migrated: a role's process owns no tables.

        Raises:
            CannotStart: it took too long, the database is unavailable or has another SECRET_KEY, or this process is to
            stop.
        """
        ends = time.monotonic() + MIGRATION_SECONDS
        while (done := self._ran("migrate", "--check", "--skip-checks", "--verbosity", "0")).returncode:
            if done.returncode == REFUSED or time.monotonic() > ends:
                raise _failed(done)
            self.say("waits until the database is migrated")
            if self._stopping.wait(2):
                raise CannotStart("stopped before the database was migrated")

    def _processes(self, stack: Stack, port: int, workers: int | None, bind: str) -> list[Process]:
        python, cwd = sys.executable, str(env.ROOT)
        place = folder_name(stack.data_dir)  # several on one host need different names
        count = workers or min(4, max(1, os.cpu_count() or 1))
        celery = [python, "-m", "celery", "-A", "agentcore_site.celery", "--quiet"]
        quiet = ["--loglevel", "WARNING", "--without-mingle", "--without-gossip"]
        worker = [*celery, "worker", *quiet]
        metrics = {"PROMETHEUS_MULTIPROC_DIR": str(_metrics_folder(stack))}
        metrics["MALLOC_ARENA_MAX"] = "2"  # freed memory returns to the system instead of to a thread
        # One thread each for linear algebra: two workers on two cores must not fight over them.
        lean = metrics | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "C_FORCE_ROOT": "1"}
        lean[HOST_ID_VARIABLE] = process_host_id(stack.data_dir)
        return [
            *(self._web(bind, port, metrics) if port else []),
            Process(
                "worker",
                [*worker, "--queues", ",".join(JOB_QUEUES), "-c", str(count), "--hostname", f"compute@%h-{place}"],
                environment=lean,
                cwd=cwd,
                heartbeats=True,
                niceness=settings.WORKER_NICENESS,
            ),
            Process(
                "helper",
                [*worker, "--queues", SHORT_TASKS, "--pool", "threads", "-c", "2", "--hostname", f"default@%h-{place}"],
                # Six tasks a second look whether there is work: a session of its own for each took half of their time.
                environment=lean | {"DB_POOL": "8", "DB_POOL_OF_TASKS": "1"},
                cwd=cwd,
                heartbeats=True,
            ),
            Process(
                "beat",
                [
                    *celery,
                    "beat",
                    "--loglevel",
                    "WARNING",
                    "--pidfile",
                    "",
                    "--schedule",
                    str(stack.run_folder / "beat"),
                ],
                environment=lean,
                cwd=cwd,
                heartbeats=True,
            ),
            Process("events", [*_manage(), "feedback_loop"], environment=lean, cwd=cwd, heartbeats=True),
        ]

    def _web(self, bind: str, port: int, environment: dict[str, str]) -> list[Process]:
        """The web processes, and those that answer calls of the gateway. The supervisor owns the one socket: a
        connection goes to a web process that is free for it, and with a call on to a process of the gateway. While none
        of a kind runs, its connections wait, and none is refused.

        Raises:
            CannotStart: this host has no such address, or the port was taken meanwhile.
        """
        try:
            site = listener(bind, port)
        except OSError as error:
            raise CannotStart(f"{bind}:{port} can't be listened on: {error.strerror}.") from error
        uvicorn = [sys.executable, "-m", "agentcore_site.web_server", "agentcore_site.asgi:application"]
        # The default would be to trust every proxy header that comes over loopback.
        uvicorn += ["--forwarded-allow-ips", ",".join(str(proxy) for proxy in settings.TRUSTED_PROXIES)]
        # A long stream must not keep the process from its end: what is cut off is settled and stored.
        uvicorn += ["--timeout-graceful-shutdown", "12"]
        # Longer than proxies and clients keep an idle connection (nginx and load balancers: 60 s): the side that closes
        # first loses no request that is just being sent.
        uvicorn += ["--timeout-keep-alive", "75"]
        # Pages send nothing over a socket; a larger frame closes it with 1009.
        uvicorn += ["--ws-max-size", str(settings.SOCKET_MAX_FRAME), "--lifespan", "on", "--log-level", "warning"]
        web, count = [*uvicorn, "--fd", str(site.fileno())], settings.GATEWAY_PROCESSES
        if settings.TLS_CERT_FILE:  # an encrypted connection can't change its process
            web, count = [*web, "--ssl-certfile", settings.TLS_CERT_FILE, "--ssl-keyfile", settings.TLS_KEY_FILE], 0
        end, gateways_end = channel_ends()
        shared, given = ((site, end), _channel(end)) if count else ((site,), {})
        return [
            *_alike("web", settings.WEB_PROCESSES, web, environment | given, shared),
            *_alike("gateway", count, uvicorn, environment | _channel(gateways_end) | {GATEWAY: "1"}, (gateways_end,)),
        ]

    # -- staying ---------------------------------------------------------------------------------------------------

    def _stay(self, stack: Stack, options: dict[str, Any], stopping: threading.Event, port: int) -> tuple[str, int]:
        demo = self._demo(options, port) if any(options[one] for one in DEMOS) else None
        once = options["once"] or any(options[one] for one in DEMOS_THAT_END)
        while not stopping.wait(0.2):
            stack.supervisor.watch()
            if demo is not None and demo.process.poll() is not None:
                demo.reader.join(timeout=5)
                if once:
                    return demo.last_line, demo.process.returncode
                print(demo.last_line, flush=True)
                self.say("the demo's job is done; the console stays up (Ctrl-C stops it)")
                demo = None
        if demo is not None:
            demo.stop()
        return "", 1 if once else 0

    def _demo(self, options: dict[str, Any], port: int) -> Demo:
        seed = options["seed"] if options["seed"] is not None else env.integer("SEED", 0, low=0, high=2**31 - 1)
        for one in DEMOS_OF_A_SITE:
            if options[one]:
                seeded = ["--seed", str(seed)] if one == "demo_model" else []
                return Demo([*_manage(), one, "--url", f"http://127.0.0.1:{port}", *seeded])
        return Demo([*_manage(), "seed_demo", "--train", "--seed", str(seed)])


class Demo:
    """The demo's own process; its last line is held back until the end."""

    def __init__(self, command: list[str]) -> None:
        self.last_line = ""
        words_alone = {"LOG_LEVEL": "WARNING"} | _environment()  # no records between what it says
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=words_alone, start_new_session=True
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if self.last_line:
                print(self.last_line, flush=True)
            self.last_line = line.rstrip("\n")


def _alike(
    name: str, count: int, command: list[str], environment: dict[str, str], sockets: tuple[socket, ...]
) -> Iterator[Process]:
    """Processes of the web server."""
    for number in range(1, count + 1):
        yield Process(
            f"{name}-{number}" if number > 1 else name,
            command,
            environment=environment | {"DB_POOL": "12"},
            cwd=str(env.ROOT),
            heartbeats=True,
            sockets=sockets,
            most_memory=settings.WEB_MEMORY_MB << 20,
            leave_signal=signal.SIGHUP,
            leave_seconds=LEAVE_SECONDS + STOP_SECONDS,
        )


def _channel(end: socket) -> dict[str, str]:
    return {CHANNEL: str(end.fileno())}


def _failed(done: subprocess.CompletedProcess[str]) -> CannotStart:
    command = done.args[len(_manage())]
    return CannotStart(f"{command} failed:\n{done.stderr.strip() or done.stdout.strip()}")


def _terminals() -> list[int]:
    """Of the three standard files those that are terminals; one that was closed is none any more."""
    return [number for number in range(3) if os.isatty(number)]


def _check_environment(role: str, options: dict[str, Any]) -> None:
    """Raises CannotStart."""
    needed = [*NEEDED, *(["NATS_URL"] if role == "events" else [])]
    if missing := [name for name in needed if not env.text(name)]:
        names = ", ".join(missing)
        raise CannotStart(f"The role {role} starts no service, and shares a secret with other hosts: set {names}.")
    if any(options[one] for one in DEMOS):
        raise CannotStart("The demo needs all roles: leave --role out.")


def _allow_loopback() -> None:
    """The console is served on loopback, to people of this machine: they may call their own model servers at once."""
    if not {"OUTBOUND_ALLOW", "OUTBOUND_ALLOW_FILE"} & os.environ.keys():
        os.environ["OUTBOUND_ALLOW"] = LOOPBACK  # for all processes started here


def _manage() -> list[str]:
    return [sys.executable, str(env.ROOT / "manage.py")]


def _environment() -> dict[str, str]:
    return dict(os.environ)


def _status_server(stack: Stack) -> StatusServer | None:
    """Raises CannotStart."""
    if not (port := env.integer("METRICS_PORT", 0, low=0, high=65535)):
        return None
    states = stack.supervisor.states
    return StatusServer(port, token=env.text("METRICS_TOKEN"), folder=_metrics_folder(stack), states=states)


def _metrics_folder(stack: Stack) -> Path:
    """Folder for the Prometheus figures of web and workers for /metrics; emptied, since counters restart at zero.

    In memory if there is a folder for that: the files are mapped, and a process that writes into one on a full disk
    dies of SIGBUS.
    """
    folder = _folder_in_memory(stack) or stack.run_folder / f"metrics{stack.role}"
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.db"):
        path.unlink(missing_ok=True)
    return folder


def _folder_in_memory(stack: Stack) -> Path | None:
    """A folder of this data folder in the system's memory; None if there is none, or another user has the name."""
    digest = hashlib.sha256(f"{stack.data_dir}{stack.role}".encode()).hexdigest()[:12]
    folder = Path("/dev/shm") / f"agentcore-{os.getuid()}-{digest}"  # noqa: S108  (made for its owner, or not taken)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    return folder if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() else None
