"""The one settings file. Every value that a site may change comes from the environment.

A secret may come from a file: `<NAME>_FILE`. A bad value stops the start and names the variable
and what it accepts.
"""

from pathlib import Path

import dj_database_url

from console import environment as env
from console import names

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"

VAR_DIR = Path(env.text("VAR_DIR", str(BASE_DIR / "var"))).absolute()
SECRET_KEY = env.secret("SECRET_KEY", VAR_DIR / "secret_key")
DEBUG = env.flag("DEBUG", False)
PORT = env.number("PORT", 8000, least=1, most=65535)
BIND = env.text("BIND", "127.0.0.1")
# On loopback only its own names count, so that no page elsewhere can reach the console by a name that it points here.
LOOPBACK = ["localhost", ".localhost", "127.0.0.1", "[::1]"]
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", LOOPBACK if BIND in ("127.0.0.1", "::1", "localhost") else ["*"])
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS", [])
STACKS_FILE = Path(env.text("STACKS_FILE", str(VAR_DIR / "stacks.json")))  # rows of the site beside the built-in ones
SITE_DIAGNOSES = Path(env.text("SITE_DIAGNOSES", str(VAR_DIR / "diagnoses" / "site.toml")))  # rules
MODELS_FILE = Path(env.text("MODELS_FILE", str(VAR_DIR / "models.json")))  # the same for the catalogue of models
MODELS_ROOT = env.text("MODELS_ROOT", "/opt/ascend-console/models")  # where models lie on servers, unless told
# Where servers get Python packages, in place of the public indexes; an operator may name others for one plan.
PACKAGE_INDEX = env.addresses("PACKAGE_INDEX", most=1)
PACKAGE_EXTRA_INDEX = env.addresses("PACKAGE_EXTRA_INDEX", most=5)
PACKAGE_INDEX_CA = env.certificate("PACKAGE_INDEX_CA")  # the authority of these, where systems do not know it
PACKAGE_PASSWORDS = env.logins("PACKAGE_PASSWORDS", most=20)  # for hosts of these, in the form of netrc
# Where models come from: hubs or their mirrors, whom to trust for them, and `HOST TOKEN` for each that asks for one.
MODEL_HUB = env.hub("MODEL_HUB", "https://huggingface.co")
MODELSCOPE_HUB = env.hub("MODELSCOPE_HUB", "https://modelscope.cn")
MODEL_HUB_CA = env.certificate("MODEL_HUB_CA")
MODEL_TOKENS = env.tokens("MODEL_TOKENS", most=20)
MODEL_UPLOAD_GB = env.number("MODEL_UPLOAD_GB", 200, least=0, most=1_000_000)  # of uploads through the browser
MODEL_COPY_PORT = env.number("MODEL_COPY_PORT", 8700, least=1, most=65535)  # between servers, while one copies
# Ports on servers: of engines, of what several servers of one engine need among themselves, and of gateways.
ENGINE_PORTS = env.ports("ENGINE_PORTS", "18000-18099")
GATEWAY_PORTS = env.ports("GATEWAY_PORTS", "18200-18299", apart_from=(ENGINE_PORTS,))
ENGINE_RAY_PORTS = env.ports("ENGINE_RAY_PORTS", "18300-18399", apart_from=(ENGINE_PORTS, GATEWAY_PORTS))
ENGINE_DP_PORTS = env.ports(
    "ENGINE_DP_PORTS", "18400-18499", apart_from=(ENGINE_PORTS, GATEWAY_PORTS, ENGINE_RAY_PORTS)
)
ENGINE_HCCL_PORTS = env.ports(
    "ENGINE_HCCL_PORTS",
    "18500-19139",
    apart_from=(ENGINE_PORTS, GATEWAY_PORTS, ENGINE_RAY_PORTS, ENGINE_DP_PORTS),
)
# Faults with which an NPU may still serve, inside one server: by default that the link of its network port is down, of
# RoCE and of UB over Ethernet (as the fault codes of Ascend's MindCluster device plugin are called).
ACCEPTED_FAULT_CODES = env.codes("ACCEPTED_FAULT_CODES", ["81078603", "81078607"])
DEMO_SERVERS = env.number("DEMO_SERVERS", 20, least=0, most=5000)

# How much one server may hold in Redis before it is switched off; 0: as services/quota.py thinks by Redis's memory.
SERVER_QUOTA_MB = env.number("SERVER_QUOTA_MB", 0, least=0, most=1_000_000)
# The share of the servers that, silent at once, makes the console doubt itself; see deployments/services/silence.py.
DOUBT_SHARE = env.share("DOUBT_SHARE", 0.3)

# How other servers reach this console and its Redis; console/addresses.py makes up for what is left out.
PUBLIC_URL = env.web_url("PUBLIC_URL")
PUBLIC_REDIS_URL = env.redis_url("PUBLIC_REDIS_URL", VAR_DIR / "-") if env.is_given("PUBLIC_REDIS_URL") else ""
PUBLIC_CERTIFICATE = env.certificate("PUBLIC_CERTIFICATE")  # PEM of what PUBLIC_URL shows, where that is not ours
ALLOW_PLAINTEXT = env.flag("ALLOW_PLAINTEXT", False)

# TLS: the site's own certificate, or one of our own authority (console/tls.py).
TLS_CERTIFICATE = env.certificate("TLS_CERTIFICATE")  # the server's first, then those between it and its authority
TLS_KEY = env.private_key("TLS_KEY", goes_with="TLS_CERTIFICATE")
TLS_CA = env.certificate("TLS_CA")  # its authority, where the systems of the site do not know it
TLS_FRONT = env.program("TLS_FRONT")  # stunnel or nginx, where PATH does not lead to one
_TLS = env.flag_if_given("TLS")
HTTPS = bool(TLS_CERTIFICATE) or not (names.is_loopback(BIND) or ALLOW_PLAINTEXT) if _TLS is None else _TLS
REDIRECT_PORT = env.number("REDIRECT_PORT", 0, least=1, most=65535)  # plain HTTP there is led to HTTPS
REDIS_BIND = env.text("REDIS_BIND", "")  # where servers that join reach the bundled Valkey; BIND where it is empty
REDIS_TLS_PORT = env.number("REDIS_TLS_PORT", 0, least=1, most=65535)
REDIS_CA = env.certificate("REDIS_CA")  # the authority of the site's own Redis

INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig",  # no page of its own: django-rq's pages ask for it
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "channels",
    "django_rq",
    "ninja",
    "auditlog",
    "axes",
    "console",
    "deployments",
    "monitoring",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "console.middleware.Compress",
    "console.middleware.HeadAsGet",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.middleware.SignedInUnlessApi",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "console.middleware.ContentSecurityPolicy",
    "django_htmx.middleware.HtmxMiddleware",
    "console.middleware.ErrorsInWords",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.context.frame",
            ],
        },
    }
]

# SQLite's write lock is taken at BEGIN: DEFERRED transactions fail by the dozen under four writers.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 5,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
DATABASES = {"default": env.database("DATABASE_URL", f"sqlite:///{VAR_DIR / 'console.sqlite3'}", dj_database_url.parse)}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = SQLITE_OPTIONS
else:
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# `make up` writes the address of the bundled Valkey to var/redis_url unless the site names its own.
REDIS_URL = env.with_authority(env.redis_url("REDIS_URL", VAR_DIR / "redis_url"), REDIS_CA)
RQ_QUEUES = {"default": {"URL": REDIS_URL, "SERIALIZER": "rq.serializers.JSONSerializer"}}

AUTH_USER_MODEL = "console.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
CSRF_FAILURE_VIEW = "console.failures.csrf_failed"
LOGIN_URL = "console:login"
LOGIN_REDIRECT_URL = "/"
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_VERBOSE = False
AXES_LOCKOUT_CALLABLE = "console.accounts.locked_out"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
# Browsers hold a name to HTTPS on each of its ports: only where no other program can answer under it in plain HTTP.
SECURE_HSTS_SECONDS = 30 * 86400 if HTTPS and PORT == 443 else 0

LANGUAGE_CODE = env.choice("LANGUAGE", "zh-hans", ["zh-hans", "en"])
LANGUAGES = [("zh-hans", "简体中文"), ("en", "English")]
LOCALE_PATHS = [BASE_DIR / "console" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = env.time_zone("TIME_ZONE", "Asia/Shanghai")

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "console.static_packages.PackagedScripts",
]
# `make up` serves a packed copy of them (console/assets.py); without one they come from where they lie.
COLLECTED = VAR_DIR / "static"
WHITENOISE_USE_FINDERS = not (COLLECTED / ".sources").exists()
STATIC_ROOT = None if WHITENOISE_USE_FINDERS else COLLECTED

# How much worse than its parent a model may be to be promotable, and how much of their answers must be the same.
GATE_BUDGET = env.share("GATE_BUDGET", 0.02)
GATE_AGREEMENT = env.share("GATE_AGREEMENT", 0.30)
# History: rows of a minute, of five minutes, of an hour (monitoring/services/rollups.py).
HISTORY_RAW_HOURS = env.number("HISTORY_RAW_HOURS", 24, least=2, most=24 * 31)
HISTORY_5MIN_DAYS = env.number("HISTORY_5MIN_DAYS", 30, least=1, most=366)
HISTORY_HOUR_DAYS = env.number("HISTORY_HOUR_DAYS", 365, least=1, most=3650)
# How long logs of jobs are kept: of those that succeeded or were cancelled, that failed, and of checks and looks; how
# much all logs may take together; how long rows of jobs stay that nothing refers to.
LOG_DAYS = env.number("LOG_DAYS", 90, least=1, most=3650)
LOG_DAYS_FAILED = env.number("LOG_DAYS_FAILED", 365, least=1, most=3650)
LOG_DAYS_LOOKS = env.number("LOG_DAYS_LOOKS", 14, least=1, most=3650)
LOG_MAX_GB = env.number("LOG_MAX_GB", 20, least=1, most=1_000_000)
JOB_DAYS = env.number("JOB_DAYS", 730, least=1, most=36500)
# The same of engines, and of rows of replicas that have ended.
ENGINE_LOG_DAYS = env.number("ENGINE_LOG_DAYS", 30, least=1, most=3650)
REPLICA_DAYS = env.number("REPLICA_DAYS", 180, least=1, most=3650)
SUPPORT_BUNDLE_DAYS = env.number("SUPPORT_BUNDLE_DAYS", 30, least=1, most=3650)
SUPPORT_BUNDLES_GB = env.number("SUPPORT_BUNDLES_GB", 20, least=1, most=1_000_000)  # of all of them together
LOG_SHARE = env.flag("LOG_SHARE", False)  # may operators make links by which anybody reads one log
PLAYGROUND_VIEWERS = env.flag("PLAYGROUND_VIEWERS", False)  # may viewers, too, talk to deployments
OFFLINE_AFTER_S = 60  # promise 2: a server is lost 60 s after its last beat, by the console's clock
SILENT_AFTER_S = 15
JOB_VALID_S = 7 * 86400

# Under `make up` the supervisor puts the time before each line.
LOG_LINE = (
    "{levelname} {name}: {message}" if env.flag("LOG_STAMPED", False) else "{asctime} {levelname} {name}: {message}"
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": LOG_LINE, "style": "{"}},
    "filters": {"quiet": {"()": "console.quiet.WithoutTokens"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["quiet"]}},
    "root": {"handlers": ["console"], "level": env.one_of("LOG_LEVEL", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"])},
}
