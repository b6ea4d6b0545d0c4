"""One settings file, fed by the typed environment (``env.py``). With nothing set, everything is embedded.

It is long because Django reads one module, in which later values are derived from earlier ones.
"""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

from agentcore_site import env
from agentcore_site.lib.queues import SHORT_TASKS, broker_settings
from agentcore_site.lib.redis_address import AnyPool, channels_host
from agentcore_site.postgresql.server import REPLICA_NAME
from agentcore_site.postgresql.watched import CONNECT_SECONDS, PatientConnection, WatchedConnection

BASE_DIR = env.ROOT
DATA_DIR = env.data_dir()
DEBUG = env.boolean("DEBUG")
SECRET_KEY = env.secret_key()
SECRET_KEY_FALLBACKS = env.listed("SECRET_KEY_FALLBACKS")
# Where people find the site: what follows from that needs no setting of its own.
OWN_PATHS = ("api", "v1", "mcp", "ws", "internal", "shared", "webhooks", "reviews")
PUBLIC_URL, SUB_PATH = env.address("PUBLIC_URL", own=OWN_PATHS)
FORCE_SCRIPT_NAME = SUB_PATH or None  # in front of every address that is made here
ALLOWED_HOSTS = env.listed("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]") + env.host_of(PUBLIC_URL)
CSRF_TRUSTED_ORIGINS = env.listed("CSRF_TRUSTED_ORIGINS", PUBLIC_URL)
TLS_CERT_FILE, TLS_KEY_FILE = env.certificate()  # where `manage.py up` itself is the end of TLS, and no proxy
# On a developer's own machine there is no TLS, and a secure cookie would lock all users out.
HTTPS = env.boolean("HTTPS", default=PUBLIC_URL.startswith("https://") or bool(TLS_CERT_FILE))
# Where that machine is a network of its own, in which passwords and cookies may go without TLS: said, never guessed.
PRIVATE_SITE = env.boolean("PRIVATE_SITE")

INSTALLED_APPS = [
    "agentcore_site.theme.ThemeConfig",
    "unfold.contrib.filters",
    "django.contrib.admin.apps.SimpleAdminConfig",  # its pages are loaded with the addresses: no worker has them
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.contrib.humanize",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "django_prometheus",
    "agentcore_site.tenancy",
    "agentcore_site.audit",
    "agentcore_site.audit_export",
    "agentcore_site.notices",
    "agentcore_site.jobs",
    "agentcore_site.encryption",
    "agentcore_site.embedded",
    "budgets",
    "experiences",
    "training",
    "evaluation",
    "evaluation.serving",
    "evaluation.events",
    "evaluation.warehouse",
    "agentcore_site",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "agentcore_site.middleware.AskedByAddress",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "agentcore_site.csp.ContentSecurityPolicy",
    "agentcore_site.middleware.RequestId",
    "agentcore_site.tenancy.row_scopes.RowScope",
    "agentcore_site.middleware.DatabaseUnavailable",
    "agentcore_site.middleware.StorableQuery",
    "agentcore_site.request_bodies.UnpackedBodies",
    "agentcore_site.console.refusals.RefusalMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "agentcore_site.identity.sign_ins.SeenSessions",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "agentcore_site.urls"
ASGI_APPLICATION = "agentcore_site.asgi.application"
WSGI_APPLICATION = "agentcore_site.wsgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "agentcore_site.views.context_processors.console",
            ],
            "builtins": ["agentcore_site.templatetags.console", "agentcore_site.templatetags.figures"],
        },
    }
]

# -- data ------------------------------------------------------------------------------------------------------------
SERVICES = env.services()
# Without a running database the commands that need none (up, check, makemigrations) must still work.
NO_DATABASE = "postgresql://agentcore@127.0.0.1:1/agentcore"
APPLICATION = env.database_settings(SERVICES.database_url or NO_DATABASE)
# What belongs to the tables' owner (migrations, backups) connects as the owner; `manage.py` says so for its commands.
AS_OWNER = env.boolean("DATABASE_AS_OWNER", default=False)
DATABASES = {"default": env.database_settings(SERVICES.owner_url or NO_DATABASE) if AS_OWNER else dict(APPLICATION)}
DATABASE_APPLICATION_ROLE = APPLICATION["USER"]
# Behind a pooler: where a silent server is asked whether it answers (agentcore_site.postgresql). None: by DATABASE_URL.
if PROBE_URL := env.text("DATABASE_PROBE_URL"):
    env.database_settings(PROBE_URL)  # refuses what is no such address
# Below this much free room on the disk of DATA_DIR jobs pause and launches are refused, with the reason. 0: never.
DISK_MINIMUM_FREE_MB = env.integer("DISK_MINIMUM_FREE_MB", 512, low=0, high=10_000_000)
# A process that hangs in the middle of a transaction (stopped, swapped out) must not hold its rows for ever: a job
# whose row it has locked could not be claimed by another worker. PostgreSQL ends such a session. The role carries the
# limit (see database_roles.py): poolers such as PgBouncer refuse start parameters.
IDLE_SECONDS = env.integer("DB_IDLE_IN_TRANSACTION_SECONDS", 30, low=5, high=3600)
DATABASES["default"]["OPTIONS"] = {"application_name": "agentcore", "connect_timeout": CONNECT_SECONDS}
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True  # a pool hands out no connection that has ended
# A pool serves the web process and short tasks; workers fork, and a pool must not cross a fork, so it is opt-in.
if DB_POOL := env.integer("DB_POOL", 0, low=0, high=200):
    # A request is answered within two seconds, also while the database is away or silent. Tasks have more time.
    WAITS = env.boolean("DB_POOL_OF_TASKS")
    DATABASES["default"]["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": DB_POOL,
        # Then the server is asked whether it is there: see agentcore_site.postgresql.
        "timeout": float(CONNECT_SECONDS) if WAITS else 1.2,
        "connection_class": PatientConnection if WAITS else WatchedConnection,
        "reconnect_timeout": 1.0,  # the next request tries again; the pool's own pauses would grow to minutes
    }
# Lists and exports are read from it where it has caught up (agentcore_site.postgresql.replica).
if REPLICA_URL := env.text("DATABASE_REPLICA_URL"):
    OPTIONS = DATABASES["default"]["OPTIONS"] | {"application_name": REPLICA_NAME}
    DATABASES["replica"] = DATABASES["default"] | env.database_settings(REPLICA_URL) | {"OPTIONS": OPTIONS}
    DATABASE_ROUTERS = ["agentcore_site.postgresql.replica.PrimaryRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_TIMEOUTS = {"socket_timeout": 0.2, "socket_connect_timeout": 0.2}  # seconds that a request may wait for it
REDIS_URL = SERVICES.redis_url or "redis://127.0.0.1:1/0"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [channels_host(REDIS_URL)], "prefix": "agentcore"},
    }
}
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": REDIS_TIMEOUTS | {"pool_class": AnyPool},
    }
}

BUCKET = env.text("AWS_STORAGE_BUCKET_NAME")
STORAGES: dict[str, dict[str, Any]] = {
    "default": env.bucket_storage(BUCKET, env.text("AWS_S3_ENDPOINT_URL"))
    if BUCKET
    else {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(DATA_DIR / "objects"), "file_permissions_mode": 0o600},
    },
    "staticfiles": {"BACKEND": "agentcore_site.static.ConsoleStaticFiles"},
}
STATIC_URL = f"{SUB_PATH}/static/"
STATIC_ROOT = Path(env.text("STATIC_ROOT", str(DATA_DIR / "static")))
STATICFILES_DIRS = [BASE_DIR / "static"]
DOCUMENTS = BASE_DIR / "docker" / "docs" / "site"  # what `make docs` builds, shown at /docs/

# -- who -------------------------------------------------------------------------------------------------------------
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
PASSWORD_RESET_TIMEOUT = 3_600  # seconds that a mailed link to choose another password lives
AUTHENTICATION_BACKENDS = ["agentcore_site.tenancy.sign_in.CountingBackend"]
# Single sign-on by OpenID Connect; without an issuer there is none.
OIDC_ISSUER = env.text("OIDC_ISSUER")
OIDC_CLIENT_ID, OIDC_CLIENT_SECRET = env.text("OIDC_CLIENT_ID"), env.text("OIDC_CLIENT_SECRET")
OIDC_NAME = env.text("OIDC_NAME", "Single sign-on")
OIDC_SCOPES = env.text("OIDC_SCOPES", "openid email profile")
OIDC_ORGANIZATION = env.text("OIDC_ORGANIZATION")  # its slug: where a person is made a member who comes first
OIDC_GROUPS = env.group_roles("OIDC_GROUPS", ("stakeholder", "developer", "operator", "admin"))
OIDC_GROUPS_CLAIM = env.text("OIDC_GROUPS_CLAIM", "groups")
OIDC_ONLY = env.boolean("OIDC_ONLY")
OIDC_SECOND_FACTOR = env.boolean("OIDC_SECOND_FACTOR")  # the provider asks for one, though its tokens don't say so
env.check_known(
    "OIDC_",
    (
        "OIDC_ISSUER",
        "OIDC_CLIENT_ID",
        "OIDC_CLIENT_SECRET",
        "OIDC_NAME",
        "OIDC_SCOPES",
        "OIDC_ORGANIZATION",
        "OIDC_GROUPS",
        "OIDC_GROUPS_CLAIM",
        "OIDC_ONLY",
        "OIDC_SECOND_FACTOR",
    ),
)
# Whose X-Forwarded-For is believed, for limits and the audit log: none until a deployment names its proxies.
TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES")
# Live connections at once, over all web processes.
SOCKETS_PER_LINK = env.integer("SOCKETS_PER_LINK", 50, low=1, high=100_000)
SOCKETS_PER_PERSON = env.integer("SOCKETS_PER_PERSON", 50, low=1, high=100_000)
SOCKET_MAX_FRAME = 2**14  # bytes; `manage.py up` gives it to the server, which then reads no larger one
# Seconds for the arrival of a request's head, and of its body, which has one more for each KiB.
REQUEST_SECONDS = env.request_seconds()
# Processes of `manage.py up` on the site's one port, and beside them those that answer calls of the gateway.
WEB_PROCESSES = env.integer("WEB_PROCESSES", 1, low=1, high=64)
GATEWAY_PROCESSES = env.integer("GATEWAY_PROCESSES", 1, low=0, high=64)
# Requests of one organisation that a web process works on at once.
ORGANIZATION_REQUESTS_AT_ONCE = env.integer("ORGANIZATION_REQUESTS_AT_ONCE", 8, low=1, high=10_000)
# Resident memory above which `manage.py up` starts another web process and lets this one end its requests; 0: never.
WEB_MEMORY_MB = env.integer("WEB_MEMORY_MB", 768, low=0, high=2**20)
# Jobs fill all cores. With 5 they get a third of the time of a web process that wants the same core.
WORKER_NICENESS = env.integer("WORKER_NICENESS", 5, low=0, high=19)
# Model servers that may run at once, each with its model in memory; 0: none is started. Folders of models below
# MODELS_FOLDER may be chosen. MODEL_SERVER_PLACE is set by `manage.py up` for what it starts.
MODEL_SERVERS = env.integer("MODEL_SERVERS", 2, low=0, high=100)
MODELS_FOLDER = env.text("MODELS_FOLDER")
MODEL_SERVER_PLACE = env.text("MODEL_SERVER_PLACE")
LOGIN_URL = LOGOUT_REDIRECT_URL = f"{SUB_PATH}/sign-in/"
LOGIN_REDIRECT_URL = SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{SUB_PATH}/"
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = ["agentcore_site.formats"]  # Django's admin writes times as the console does

CSRF_FAILURE_VIEW = "agentcore_site.views.errors.csrf_failure"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
# Of other sites under this host, and of browsers' own lists, only who asks for it decides.
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS and env.boolean("HSTS_SUBDOMAINS")
SECURE_HSTS_PRELOAD = SECURE_HSTS_INCLUDE_SUBDOMAINS and env.boolean("HSTS_PRELOAD")
SECURE_REDIRECT_EXEMPT = [r"^health/", r"^metrics$"]  # asked within the cluster, by the address of a process
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = {
    # Neither inline script nor inline style; csp.py has what the admin's theme needs besides.
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "connect-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "style-src": ["'self'"],
        "script-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    },
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024 * 1024  # 10,000 queries of a few kilobytes; larger bodies get a 413

# -- REST ------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agentcore_site.tenancy.authentication.ApiKeyAuthentication",
        "agentcore_site.tenancy.authentication.JwtAuthentication",
        "agentcore_site.tenancy.authentication.ConsoleSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "agentcore_site.rest.schema.VersionedSchema",
    "DEFAULT_PARSER_CLASSES": ["agentcore_site.rest.parsing.JsonParser"],
    "DEFAULT_METADATA_CLASS": "agentcore_site.rest.metadata.AllowedMethods",
    "DEFAULT_FILTER_BACKENDS": ["agentcore_site.rest.filters.StrictFilters"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_THROTTLE_CLASSES": ["agentcore_site.rest.throttling.KeyThrottle"],
    "DEFAULT_THROTTLE_RATES": {
        "key": env.text("API_RATE", "6000/min"),
        "token": "30/min",
        "ace": env.text("ACE_RATE", "60000/min"),
    },
    "EXCEPTION_HANDLER": "agentcore_site.rest.problems.handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
# Unpacked megabytes of OTLP exports that a key may send in a minute, beside API_RATE. 0: not limited.
OTLP_MB_PER_MINUTE = env.integer("OTLP_MB_PER_MINUTE", 1_200, low=0, high=10_000_000)
# Without a private key tokens are signed by HS256 with SECRET_KEY (tenancy/jwt_keys.py).
JWT_PRIVATE_KEY = env.rsa_private_key("JWT_PRIVATE_KEY")
JWT_VERIFYING_KEYS = env.rsa_public_keys("JWT_VERIFYING_KEYS")
SIMPLE_JWT: dict[str, Any] = {
    "ACCESS_TOKEN_LIFETIME": timedelta(minutes=30),
    "REFRESH_TOKEN_LIFETIME": timedelta(days=1),
    "AUTH_TOKEN_CLASSES": ("agentcore_site.tenancy.jwt_keys.AccessToken",),
    "UPDATE_LAST_LOGIN": False,
    "CHECK_REVOKE_TOKEN": True,  # a token ends with the password that it was made by
}
SPECTACULAR_SETTINGS = {
    "TITLE": "AgentCore",
    "DESCRIPTION": "Train LLM agents from their own trajectories.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    **({"SERVERS": [{"url": SUB_PATH}]} if SUB_PATH else {}),
    "COMPONENT_SPLIT_REQUEST": True,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],  # it is in the repository anyway
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "agentcore_site.rest.schema.add_problems",
        "agentcore_site.rpc.describe",
    ],
    "ENUM_NAME_OVERRIDES": {
        "JobStatus": "agentcore_site.jobs.models.Status",
        "ExperienceStatus": "experiences.models.ExperienceStatus",
        "ExperienceKind": "experiences.models.ExperienceKind",
        "KindEnum": "experiences.models.EndpointKind",
        "TraceStatus": "evaluation.serving.models.TraceStatus",
        "FeedbackSource": "evaluation.serving.models.FeedbackSource",
        "ReleaseSource": "evaluation.serving.models.ReleaseSource",
        "SkillStatus": "evaluation.serving.releases.skill_imports.STATUSES",
        "DeltaOutStateEnum": "experiences.models.DeltaState",
        "EndpointFormat": "agentcore_site.notices.models.EndpointFormat",
        "DeploymentState": "evaluation.serving.models.DeploymentState",
        "TurnState": "evaluation.serving.models.TurnState",
        "LoopRowState": "evaluation.serving.models.RowState",
        "LoopRowSource": "evaluation.serving.models.RowSource",
        "LoopTrigger": "evaluation.serving.models.LoopTrigger",
        "RowReview": "evaluation.serving.models.RowReview",
    },
}

# -- models: the endpoint of agents that name none -----------------------------------------------------------------
LLM_BASE_URL = env.text("LLM_BASE_URL")
LLM_API_KEY = env.text("LLM_API_KEY")
LLM_MODEL = env.text("LLM_MODEL")
PORTKEY_API_KEY = env.text("PORTKEY_API_KEY")
PORTKEY_PROVIDER = env.text("PORTKEY_PROVIDER")
PORTKEY_CONFIG = env.text("PORTKEY_CONFIG")
PORTKEY_VIRTUAL_KEY = env.text("PORTKEY_VIRTUAL_KEY")

# Command lines of MCP servers that workers may start, by comma, and hosts that the fetch tool may read: none.
MCP_COMMANDS = [tuple(shlex.split(line)) for line in env.listed("MCP_COMMANDS")]
FETCH_HOSTS = tuple(env.listed("FETCH_HOSTS"))
# Where a worker serves models to foreign agents (a free port), and the host in the address that those agents get.
ROLLOUT_GATEWAY_HOST = env.text("ROLLOUT_GATEWAY_HOST", "127.0.0.1")
ROLLOUT_GATEWAY_ADVERTISED = env.text("ROLLOUT_GATEWAY_ADVERTISED")

# -- calls to addresses that people and models enter ------------------------------------------------------------------
# Private hosts and networks that may be called: none. `manage.py up`, which serves loopback only, allows loopback.
OUTBOUND_ALLOW = tuple(env.listed("OUTBOUND_ALLOW"))
OUTBOUND_CA_FILE = env.text("OUTBOUND_CA_FILE")  # certificates to trust beside the operating system's
OUTBOUND_PROXIES = env.proxies()
# A job is paused that spends in a minute more than so many times what its answered calls need, and more than the floor.
SPENDING_BRAKE_FACTOR = env.number("SPENDING_BRAKE_FACTOR", 5, low=0, high=1_000)  # 0: never
SPENDING_BRAKE_FLOOR_USD = env.number("SPENDING_BRAKE_FLOOR_USD", 1, low=0, high=1_000_000)

# -- jobs ------------------------------------------------------------------------------------------------------------
JOB_LEASE_SECONDS = env.integer("JOB_LEASE_SECONDS", 30, low=2, high=3600)
# Longer than any call to a model may take with all its repetitions: nothing that works is silent for so long.
JOB_STALL_SECONDS = env.integer("JOB_STALL_SECONDS", 900, low=1, high=86_400)
JOB_SLICE_SECONDS = env.integer("JOB_SLICE_SECONDS", 2, low=1, high=600)
# With many jobs a turn gets shorter, so that each worker's round through all of them takes about this long.
JOB_ROUND_SECONDS = env.integer("JOB_ROUND_SECONDS", 40, low=1, high=3600)
JOB_SWEEP_SECONDS = env.integer("JOB_SWEEP_SECONDS", 5, low=1, high=300)
JOB_MAX_CRASHES = env.integer("JOB_MAX_CRASHES", 50, low=1, high=10_000)
JOBS_PER_USER = env.integer("TRAINING_JOBS_PER_USER", 100, low=1, high=100_000)
# Of an organisation when it is made; an admin changes it there.
JOBS_PER_ORGANIZATION = env.integer("TRAINING_MAX_CONCURRENT_JOBS", 200, low=1, high=100_000)
# What a launch takes that says nothing.
TRAINING_DEFAULT_BUDGET_USD = env.number("TRAINING_DEFAULT_BUDGET_USD", 100, low=0.01, high=1_000_000_000)
TRAINING_CHECKPOINT_INTERVAL = env.integer("TRAINING_CHECKPOINT_INTERVAL", 10, low=1, high=10_000)
TRAINING_MAX_CONCURRENT_ROLLOUTS = env.integer("TRAINING_MAX_CONCURRENT_ROLLOUTS", 8, low=1, high=1_000)
env.check_known(
    "TRAINING_",
    (
        "TRAINING_JOBS_PER_USER",
        "TRAINING_MAX_CONCURRENT_JOBS",
        "TRAINING_DEFAULT_BUDGET_USD",
        "TRAINING_CHECKPOINT_INTERVAL",
        "TRAINING_MAX_CONCURRENT_ROLLOUTS",
        "TRAINING_TRAJECTORY_RETENTION_DAYS",
    ),
)

CELERY_BROKER_URL, CELERY_BROKER_TRANSPORT_OPTIONS, CELERY_TASK_QUEUES = broker_settings(
    env.text("CELERY_BROKER_URL") or REDIS_URL
)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = SHORT_TASKS
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Early acknowledgement on purpose: the row is the truth. A message lost with its worker is sent again by the sweep,
# while a late one would be delivered twice to two healthy workers after the visibility timeout.
CELERY_TASK_ACKS_LATE = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_max": 0.2}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# A worker that was killed is started again by the same name: its queue for questions must not be locked meanwhile.
CELERY_CONTROL_QUEUE_EXCLUSIVE, CELERY_CONTROL_QUEUE_DURABLE = False, True
CELERY_WORKER_CONSUMER = "agentcore_site.jobs.worker_heartbeat:HeartbeatConsumer"
CELERY_BEAT_SCHEDULE = {
    "audit.seal": {"task": "audit.seal", "schedule": 10, "options": {"expires": 10}},
    "audit.send": {"task": "audit.send", "schedule": 5, "options": {"expires": 10}},
    "jobs.sweep": {"task": "jobs.sweep", "schedule": JOB_SWEEP_SECONDS},
    "tenancy.mails": {"task": "tenancy.mails", "schedule": 10},
    "notices.spread": {"task": "notices.spread", "schedule": 2, "options": {"expires": 5}},
    "notices.deliver": {"task": "notices.deliver", "schedule": 2, "options": {"expires": 5}},
    "notices.digests": {"task": "notices.digests", "schedule": 300, "options": {"expires": 300}},
    "budgets.sweep": {"task": "budgets.sweep", "schedule": 30},
    "budgets.days": {"task": "budgets.days", "schedule": timedelta(hours=1), "options": {"expires": 3600}},
    "evaluation.sweep": {"task": "evaluation.sweep", "schedule": 60},
    # New answers and feedback step their deployments themselves; what only time moves can wait two seconds.
    "serving.feedback": {"task": "serving.feedback", "schedule": 0.5, "options": {"expires": 5}},
    "serving.sessions": {"task": "serving.sessions", "schedule": 10, "options": {"expires": 10}},
    "serving.journals": {"task": "serving.journals", "schedule": 2, "options": {"expires": 5}},
    # One that waits longer is of no use: the next one is there by then.
    "serving.deployments": {"task": "serving.deployments", "schedule": 2, "options": {"expires": 5}},
    "serving.plans": {"task": "serving.plans", "schedule": 5, "options": {"expires": 10}},
    "serving.loops": {"task": "serving.loops", "schedule": 5, "options": {"expires": 10}},
    "events.traces": {"task": "events.traces", "schedule": 2, "options": {"expires": 10}},
    "retention": {"task": "retention", "schedule": timedelta(hours=1), "options": {"expires": 3600}},
    "warehouse.roll_up": {"task": "warehouse.roll_up", "schedule": 20, "options": {"expires": 20}},
    "warehouse.fill": {"task": "warehouse.fill", "schedule": 5, "options": {"expires": 10}},
}
CELERY_BEAT_SCHEDULER = "agentcore_site.jobs.beat_lease:LeasedScheduler"
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "run" / "beat-schedule")

# Whose text may change a playbook without a person who releases it. None by default.
TRUSTED_SOURCES = env.among("TRUSTED_SOURCES", ("executions",))

# -- playbooks that evolve (ACE) -------------------------------------------------------------------------------------
# Off: nothing evolves and no evolution can be asked for; playbooks stay readable and can be changed by hand. On: agents
# evolve that were switched on (`evolves`). An agent may have settings of its own
# (experiences/agents/evolution_settings.py).
ACE_ENABLED = env.boolean("ACE_ENABLED", default=True)
# Of an agent whose playbook a service makes: direct, each new version at once; reviewed, with a deployed release.
ACE_RELEASE = env.choice("ACE_RELEASE", "direct", ("direct", "reviewed"))
ACE_DELTA_MODEL = env.text("ACE_DELTA_MODEL")  # at the agent's endpoint; empty: the agent's own model
ACE_MIN_CONFIDENCE = env.number("ACE_MIN_CONFIDENCE", 0.7, low=0, high=1)
ACE_REVIEW_CONFIDENCE = env.number("ACE_REVIEW_CONFIDENCE", 0.4, low=0, high=1)
ACE_MAX_SECTIONS = env.integer("ACE_MAX_SECTIONS", 20, low=1, high=200)
ACE_EVOLUTION_FREQUENCY = env.integer("ACE_EVOLUTION_FREQUENCY", 10, low=1, high=100_000)
ACE_REFLECTION_ROUNDS = env.integer("ACE_REFLECTION_ROUNDS", 0, low=0, high=5)  # 0: changes are suggested without one
ACE_MONTHLY_BUDGET_USD = env.number("ACE_MONTHLY_BUDGET_USD", 100, low=0, high=1_000_000)  # of each agent
# Evolution of an agent is paused while its executions take so many times as long as before its last change; 0: never.
ACE_BREAKER_FACTOR = env.number("ACE_BREAKER_FACTOR", 1.5, low=0, high=100)
ACE_BREAKER_HOURS = env.integer("ACE_BREAKER_HOURS", 24, low=1, high=8760)
ACE_TRACE_DAYS = env.integer("ACE_TRACE_DAYS", 30, low=1, high=3650)
ACE_DELTA_DAYS = env.integer("ACE_DELTA_DAYS", 90, low=1, high=3650)

# -- events (NATS JetStream) ------------------------------------------------------------------------------------------
# Empty: no events go out or come in. Several servers of a cluster by comma.
EVENTS_PLACES = env.events_settings()
NATS_URL = EVENTS_PLACES["NATS_URL"]
# Of a server on this machine: the file of its accounts, and the process to notify of a change.
NATS_ACCOUNTS_FILE = EVENTS_PLACES["NATS_ACCOUNTS_FILE"]
NATS_PID_FILE = EVENTS_PLACES["NATS_PID_FILE"]
# The organisation (its slug) whose events have the plain subjects: for a server without accounts of ours.
NATS_ORGANIZATION = env.text("NATS_ORGANIZATION")
# MiB of all streams together, and of the unread messages of each organisation's publishers.
NATS_STORE_MB = env.integer("NATS_STORE_MB", int(EVENTS_PLACES["NATS_STORE_MB"] or 10_240), low=256, high=10**9)
NATS_INBOX_MB = env.integer("NATS_INBOX_MB", 64, low=16, high=10**6)
DEAD_LETTERS_KEPT = env.integer("DEAD_LETTERS_KEPT", 5_000, low=10, high=10**6)  # of each organisation
NATS_REPLICAS = env.integer("NATS_REPLICAS", 1, low=1, high=5)  # of each stream; 3 in a cluster of three

# -- the warehouse (ClickHouse) --------------------------------------------------------------------------------------
# http(s)://user:password@host:8123/database. Empty: dashboards ask PostgreSQL's roll-ups.
CLICKHOUSE_URL = env.warehouse_url()

# -- encryption at rest ----------------------------------------------------------------------------------------------
# Who has the key of data keys: the transit engine of a Vault or an OpenBao, else a key made of SECRET_KEY.
VAULT_ADDR = env.origin("VAULT_ADDR")
VAULT_TOKEN = env.text("VAULT_TOKEN")
VAULT_NAMESPACE = env.text("VAULT_NAMESPACE")
VAULT_TRANSIT_MOUNT = env.text("VAULT_TRANSIT_MOUNT", "transit")
VAULT_TRANSIT_KEY = env.text("VAULT_TRANSIT_KEY", "agentcore")
ENCRYPTION_HOLDER = "vault" if VAULT_ADDR else "local"

# -- the gateway (/v1) -----------------------------------------------------------------------------------------------
# Where each web process writes work that is not in the database yet. It has to outlive the process; another one on
# the same disk finishes the work of one that was killed.
GATEWAY_JOURNAL = env.text("GATEWAY_JOURNAL") or str(DATA_DIR / "gateway")
# Calls and streams under way at once, over all web processes: of a key, an organisation, an address.
GATEWAY_CALLS_PER_KEY = env.integer("GATEWAY_CALLS_PER_KEY", 256, low=1, high=100_000)
GATEWAY_CALLS_PER_ORGANIZATION = env.integer("GATEWAY_CALLS_PER_ORGANIZATION", 1024, low=1, high=100_000)
GATEWAY_CALLS_PER_ADDRESS = env.integer("GATEWAY_CALLS_PER_ADDRESS", 1024, low=1, high=100_000)
GATEWAY_STREAMS_PER_KEY = env.integer("GATEWAY_STREAMS_PER_KEY", 128, low=1, high=100_000)
GATEWAY_STREAMS_PER_ORGANIZATION = env.integer("GATEWAY_STREAMS_PER_ORGANIZATION", 512, low=1, high=100_000)
GATEWAY_STREAMS_PER_ADDRESS = env.integer("GATEWAY_STREAMS_PER_ADDRESS", 512, low=1, high=100_000)
# Sites whose pages may call the gateway from a browser (https://app.example.org, or * for all). Such a page shows its
# key to its visitors: give it a key with limits.
GATEWAY_ORIGINS = [one.rstrip("/").lower() for one in env.listed("GATEWAY_ORIGINS")]
PRODUCTION_TRACE_DAYS = env.integer("PRODUCTION_TRACE_DAYS", 30, low=1, high=3650)

# -- retention -------------------------------------------------------------------------------------------------------
# Days after the end of its month that a trajectory stays in the database; then it is archived. 0: it is never.
TRAJECTORY_HOT_DAYS = env.integer("TRAINING_TRAJECTORY_RETENTION_DAYS", 30, low=0, high=3650)
# Days that an archive is kept where neither its agent nor its organisation says otherwise. 0: for ever.
TRAJECTORY_ARCHIVE_DAYS = env.integer("TRAJECTORY_ARCHIVE_DAYS", 90, low=0, high=3650)
# Days that the file of an export is kept after its job ended. 0: for ever.
EXPORT_DAYS = env.integer("EXPORT_DAYS", 7, low=0, high=3650)
JOB_EVENT_DAYS = env.integer("JOB_EVENT_DAYS", 365, low=0, high=3650)  # after a job's end; 0: for ever

# -- learning the context of a model ---------------------------------------------------------------------------------
# Off: nothing is rolled out in groups for training-free GRPO; such a job is refused at every interface. On: agents may
# be trained so that were switched on (`grouped_execution`), which new agents are not.
FEATURE_TFGRPO_GROUP = env.boolean("FEATURE_TFGRPO_GROUP", default=True)
# What `manage.py tfgrpo_learning` does where its command line says nothing.
TFGRPO_EPOCHS = env.integer("TFGRPO_EPOCHS", 3, low=1, high=100)
TFGRPO_GROUP_SIZE = env.integer("TFGRPO_GROUP_SIZE", 2, low=2, high=32)
TFGRPO_SAMPLE_SIZE = env.integer("TFGRPO_SAMPLE_SIZE", 100, low=10, high=10_000)
TFGRPO_TRAIN_TEMP = env.number("TFGRPO_TRAIN_TEMP", 0.7, low=0.01, high=5)
TFGRPO_EVAL_TEMP = env.number("TFGRPO_EVAL_TEMP", 0.3, low=0, high=5)

# -- watching --------------------------------------------------------------------------------------------------------
PROMETHEUS_METRIC_NAMESPACE = ""
METRICS_TOKEN = env.text("METRICS_TOKEN")
# Spans of jobs go here (OTLP over HTTP); empty: none are made.
OTEL_ENDPOINT = env.text("OTEL_EXPORTER_OTLP_ENDPOINT")
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "agentcore_site.telemetry.JsonFormatter"}},
    "filters": {
        "one_line": {"()": "agentcore_site.telemetry.OneLine"},
        "no_error_of_ours": {"()": "agentcore_site.telemetry.NoErrorOfOurs"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["console"], "level": env.text("LOG_LEVEL", "INFO")},
    "loggers": {
        "django.request": {"level": "ERROR", "filters": ["no_error_of_ours"]},
        "django.security.DisallowedHost": {"filters": ["one_line"]},
        "uvicorn.access": {"level": "WARNING"},
        # Through our formatter, which cuts what lets people in out of addresses.
        "uvicorn.error": {"level": "WARNING", "handlers": ["console"], "propagate": False},
        # It warns of tasks with a time, of which there are none, at each start beside RabbitMQ.
        "kombu.transport.native_delayed_delivery": {"level": "ERROR"},
        # They log addresses, and a webhook's path is its secret.
        **{name: {"level": "WARNING"} for name in ("aiohttp", "httpx", "httpx2", "httpcore", "httpcore2", "mcp")},
    },
}


def _icon(request: Any) -> str:
    """The address of the icon. Asked for with each page, since static files are not yet set up when this is read."""
    from django.templatetags.static import static

    return static("img/icon.svg")


def _admin_style(request: Any) -> str:
    from django.templatetags.static import static

    return static("css/admin.css")


def _admin_script(request: Any) -> str:
    from django.templatetags.static import static

    return static("js/admin.js")


UNFOLD = {
    "SITE_TITLE": "AgentCore admin",
    "SITE_HEADER": "AgentCore",
    "SITE_SUBHEADER": "Administration",
    "SITE_URL": "/",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _icon}],
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "STYLES": [_admin_style],
    "SCRIPTS": [_admin_script],
    "DASHBOARD_CALLBACK": "agentcore_site.admin_index.dashboard",
    "SIDEBAR": {"show_search": True},
}
# Without a host each mail is a file, for the owner of the data folder alone: a log would keep what links open.
EMAIL_HOST = env.text("EMAIL_HOST")
EMAIL_PORT = env.integer("EMAIL_PORT", 587, low=1, high=65535)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = env.text("EMAIL_HOST_USER"), env.text("EMAIL_HOST_PASSWORD")
EMAIL_USE_TLS = env.boolean("EMAIL_USE_TLS", default=True)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "agentcore@localhost")
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'filebased'}.EmailBackend"
EMAIL_FILE_PATH = DATA_DIR / "run" / "mails"
# Of a private site without TLS these would lock all users out.
PLAIN = ["security.W004", "security.W008", "security.W012", "security.W016"]
# HSTS for more than this host is a choice, not a fault.
HSTS_ALONE = ["security.W005", "security.W021"]
SILENCED_SYSTEM_CHECKS = HSTS_ALONE if HTTPS else PLAIN if PRIVATE_SITE else []
