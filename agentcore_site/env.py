"""The typed environment: the only reader of ``os.environ``.

Each ``NAME`` may be given as ``NAME_FILE`` (a path whose content is the value), so that secrets can come from
mounted files. With nothing set, everything is embedded: the addresses of the services that ``manage.py up``
started are read from the data folder.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent
INSTALLED = not (CHECKOUT / "manage.py").is_file()  # from the wheel, which keeps its other files in the package
ROOT = PACKAGE / "bundle" if INSTALLED else CHECKOUT
COMMAND = "agentcore" if INSTALLED else "manage.py"  # as a person types it
PEM_END = "-----END PUBLIC KEY-----"


class BadEnvironment(ValueError):
    """A variable that can't be used; the message names it and describes a valid value."""


def text(name: str, default: str = "") -> str:
    """The value of ``NAME``, else the content of the file ``NAME_FILE``, else ``default``."""
    if name in os.environ:
        return os.environ[name].strip()
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise BadEnvironment(f"{name}_FILE={path} cannot be read: {error.strerror}.") from error
    return default


def boolean(name: str, default: bool = False) -> bool:
    value = text(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise BadEnvironment(f"{name} must be 1 or 0; got {value!r}.")


def integer(name: str, default: int, *, low: int, high: int) -> int:
    value = text(name)
    if not value:
        return default
    try:
        number = int(value)
    except ValueError:
        raise BadEnvironment(f"{name} must be a whole number; got {value!r}.") from None
    if not low <= number <= high:
        raise BadEnvironment(f"{name} must be between {low} and {high}; got {number}.")
    return number


def request_seconds() -> int:
    """Read here by the web server's protocol, which must not need Django."""
    return integer("REQUEST_SECONDS", 20, low=1, high=3600)


def number(name: str, default: float, *, low: float, high: float) -> float:
    value = text(name)
    if not value:
        return default
    try:
        parsed = float(value)
    except ValueError:
        raise BadEnvironment(f"{name} must be a number; got {value!r}.") from None
    if not low <= parsed <= high:
        raise BadEnvironment(f"{name} must be between {low:g} and {high:g}; got {value}.")
    return parsed


def listed(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in text(name, default).split(",") if part.strip()]


def among(name: str, allowed: Collection[str]) -> frozenset[str]:
    """Words separated by commas, each one of ``allowed``; none by default."""
    found = frozenset(listed(name))
    if wrong := sorted(found - set(allowed)):
        raise BadEnvironment(f"{name} knows no {wrong[0]!r}; it takes {', '.join(sorted(allowed))}, by comma.")
    return found


def choice(name: str, default: str, allowed: Collection[str]) -> str:
    """One word of ``allowed``; an empty value is the default."""
    value = text(name) or default
    if value not in allowed:
        raise BadEnvironment(f"{name} knows no {value!r}; it takes {' or '.join(allowed)}.")
    return value


def origin(name: str, given: str | None = None) -> str:
    """``https://host`` or ``http://host:port``, without a path; "" if none is given."""
    value = text(name).rstrip("/") if given is None else given
    if value:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or value != f"{parts.scheme}://{parts.netloc}":
            raise BadEnvironment(f"{name} must be https://host or http://host:port, without a path; got {value!r}.")
        if "@" in parts.netloc:
            raise BadEnvironment(f"{name} must name no user.")
    return value


def address(name: str, *, own: Collection[str]) -> tuple[str, str]:
    """An ``origin``, and the path behind it ("" or "/agentcore") under which a proxy serves the site. Its first part is
    none of the site's ``own``."""
    value = text(name).rstrip("/")
    path = urlsplit(value).path
    if not path or not value.endswith(path):
        return origin(name, value), ""
    if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._~-]*)+", path) or path.split("/")[1] in own:
        raise BadEnvironment(
            f"{name} must end in a path that is none of the site's, such as /agentcore; got {value!r}."
        )
    return origin(name, value.removesuffix(path)), path


def host_of(url: str) -> list[str]:
    """The host of an ``origin`` as Django's ALLOWED_HOSTS writes it."""
    host = urlsplit(url).hostname or ""
    return [f"[{host}]" if ":" in host else host] if host else []


def certificate() -> tuple[str, str]:
    """``TLS_CERT_FILE`` and ``TLS_KEY_FILE``: both, or neither; they are files that can be read."""
    names = ("TLS_CERT_FILE", "TLS_KEY_FILE")
    cert, key = (text(name) for name in names)
    if bool(cert) != bool(key):
        raise BadEnvironment("TLS_CERT_FILE and TLS_KEY_FILE belong together: set both, or neither.")
    for name, path in zip(names, (cert, key), strict=True):
        if path and not os.access(path, os.R_OK):
            raise BadEnvironment(f"{name}={path} cannot be read.")
    return cert, key


def group_roles(name: str, roles: Collection[str]) -> list[tuple[str, str, str]]:
    """``group=organisation:role`` separated by commas: a provider's group, an organisation's slug, and one of
    ``roles``."""
    found = []
    for part in listed(name):
        group, _, rest = part.rpartition("=")
        slug, _, role = rest.partition(":")
        if not group.strip() or not slug.strip() or role.strip() not in roles:
            raise BadEnvironment(f"{name} must be group=organisation:role by comma, with a role of {', '.join(roles)}.")
        found.append((group.strip(), slug.strip(), role.strip()))
    return found


def rsa_private_key(name: str) -> str:
    """A private RSA key of at least 2,048 bits, as PEM without a password; "" if none is given."""
    value = text(name)
    if value:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(value.encode(), None)
        except (TypeError, ValueError) as error:
            raise BadEnvironment(f"{name} must be a private RSA key in PEM, without a password.") from error
        if not isinstance(key, RSAPrivateKey) or key.key_size < 2048:
            raise BadEnvironment(f"{name} must be an RSA key of at least 2,048 bits.")
    return value


def rsa_public_keys(name: str) -> list[str]:
    """Public RSA keys of at least 2,048 bits, as PEM, one after another."""
    found = [f"{one}{PEM_END}" for one in text(name).split(PEM_END)]
    *keys, rest = (one.strip() for one in found)
    if rest != PEM_END:
        raise BadEnvironment(f"{name} must be public RSA keys in PEM, one after another.")
    for one in keys:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(one.encode())
        except ValueError as error:
            raise BadEnvironment(f"{name} must be public RSA keys in PEM, one after another.") from error
        if not isinstance(key, RSAPublicKey) or key.key_size < 2048:
            raise BadEnvironment(f"{name} must be RSA keys of at least 2,048 bits.")
    return keys


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    """Networks and addresses separated by commas, e.g. ``10.0.0.0/8,::1``."""
    try:
        return [ip_network(part, strict=False) for part in listed(name)]
    except ValueError as error:
        raise BadEnvironment(f"{name} must be networks or addresses by comma: {error}.") from error


def proxies() -> dict[str, str]:
    """``HTTP_PROXY`` and ``HTTPS_PROXY`` by scheme, and ``NO_PROXY`` under "no"; small letters win.

    Raises:
        BadEnvironment: a proxy of another kind (SOCKS).
    """
    found = getproxies_environment()
    for name in ("http", "https"):
        kind, mark, _ = found.get(name, "").partition("://")
        if mark and kind.lower() not in {"http", "https"}:
            raise BadEnvironment(
                f"{name.upper()}_PROXY must be http://host:port; got {kind}://, which is not spoken here."
            )
    return {name: found[name] for name in ("http", "https", "no") if name in found}


def check_known(prefix: str, known: Sequence[str]) -> None:
    """Refuses variables that begin with ``prefix`` and that no code reads: a misspelt name would be ignored silently.

    Raises:
        BadEnvironment: there is one; the message names it and the known ones.
    """
    given = {name.removesuffix("_FILE") for name in os.environ if name.startswith(prefix)}
    for name in sorted(given.difference(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise BadEnvironment(f"{name} is not a setting{hint}. Those of {prefix}*: {', '.join(known)}.")


def data_dir() -> Path:
    """`DATA_DIR`. Else `var` of a checkout, or the user's folder of data where the wheel is installed."""
    home = Path(text("XDG_DATA_HOME", "~/.local/share")) / "agentcore"
    return Path(text("DATA_DIR", str(home if INSTALLED else ROOT / "var"))).expanduser().absolute()


def data_folder() -> Path:
    """The data folder, created if it did not exist.

    Only its owner may read it. If root owns it, others may traverse (not list) it: the embedded services run
    unprivileged.

    Raises:
        BadEnvironment: it can't be made.
    """
    folder = data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise BadEnvironment(
            f"DATA_DIR={folder} can't be made: {error.strerror}. Set it to a folder of yours."
        ) from None
    return folder


def private_file(path: Path, content: str) -> None:
    """Writes ``content`` so that only the owner can read it, and so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(content)
    os.replace(temporary, path)


def kept_secret(path: Path) -> str:
    """Content of the file; a new secret is generated and written if there is none."""
    if not path.exists():
        private_file(path, secrets.token_urlsafe(24))
    return path.read_text(encoding="utf-8").strip()


def secret_key() -> str:
    """``SECRET_KEY``, else a key that is generated once and kept in the data folder."""
    given = text("SECRET_KEY")
    if given:
        if len(given) < 32:
            raise BadEnvironment("SECRET_KEY must have at least 32 characters.")
        return given
    path = data_folder() / "secret_key"
    if not path.exists():
        try:
            with open(path, "x", encoding="utf-8", opener=lambda p, flags: os.open(p, flags, 0o600)) as stream:
                stream.write(secrets.token_urlsafe(48))
        except FileExistsError:
            pass  # another process was first; read its key
        except OSError as error:
            raise BadEnvironment(f"{path} can't be written: {error.strerror}. Set DATA_DIR or SECRET_KEY.") from None
    return path.read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class Services:
    """Addresses of PostgreSQL and of the Redis protocol: from the environment, else from the file of ``manage.py up``.

    ``database_url`` is the application's role. ``owner_url`` is the role that owns the tables and migrates them; it is
    the same if only one is given.
    """

    database_url: str
    owner_url: str
    redis_url: str
    embedded: bool
    extra: dict[str, Any] = field(default_factory=dict)


def services_file() -> Path:
    return data_dir() / "run" / "services.json"


def services() -> Services:
    database, redis, owner = text("DATABASE_URL"), text("REDIS_URL"), text("DATABASE_OWNER_URL")
    written: dict[str, Any] = {}
    if not (database and redis) or boolean("EVENTS") or boolean("WAREHOUSE"):
        try:
            written = json.loads(services_file().read_text(encoding="utf-8"))
        except (OSError, ValueError):
            written = {}
    if not owner:  # the file of `up` is about its own database, never about one that the environment names
        owner = database or written.get("database_owner_url", "") or written.get("database_url", "")
    return Services(
        database_url=database or written.get("database_url", ""),
        owner_url=owner,
        redis_url=redis or written.get("redis_url", ""),
        embedded=not (database and redis),
        extra=written,
    )


def events_settings() -> dict[str, str]:
    """``NATS_URL``, and two files and the room of a server on this machine, from the environment, else from `up`.

    Empty: no events. What `up` wrote belongs to its own server, never to one that the environment names.
    """
    names = ("NATS_URL", "NATS_ACCOUNTS_FILE", "NATS_PID_FILE", "NATS_STORE_MB")
    written = {} if text("NATS_URL") else services().extra
    return {name: text(name) or str(written.get(name.lower(), "")) for name in names}


def warehouse_url() -> str:
    """``CLICKHOUSE_URL`` from the environment, else as `up` wrote it. Empty: no warehouse."""
    return text("CLICKHOUSE_URL") or str(services().extra.get("clickhouse_url", ""))


def database_settings(url: str) -> dict[str, Any]:
    """Django's ``DATABASES`` entry for a ``postgresql://user:password@host:port/name`` URL.

    Raises:
        BadEnvironment: another scheme than PostgreSQL's, or no database name.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise BadEnvironment(f"DATABASE_URL must begin with postgresql://; got {parts.scheme or 'nothing'}://.")
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise BadEnvironment("DATABASE_URL names no database: postgresql://user:password@host:port/NAME.")
    return {
        "ENGINE": "agentcore_site.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or 5432),
    }


def bucket_storage(bucket: str, endpoint: str) -> dict[str, Any]:
    """Django's ``STORAGES`` entry for a bucket of S3 or of what speaks its protocol (``endpoint`` "": Amazon's).

    A call gives up within seconds: a job that waits for a storage holds its worker.
    """
    from botocore.config import Config

    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": bucket,
            "endpoint_url": endpoint or None,
            "file_overwrite": False,
            "default_acl": None,
            "client_config": Config(
                connect_timeout=3,
                read_timeout=20,
                retries={"max_attempts": 2},
                s3={"addressing_style": "path"},
                signature_version="s3v4",
            ),
        },
    }
