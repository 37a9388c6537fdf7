"""The HTTP client that adapters share: cheap to open, loopback never through a proxy, and no redirect followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from engine.errors import ConfigurationError
from engine.limits import CONNECT_SECONDS

if TYPE_CHECKING:
    import ssl

    from httpx2 import AsyncClient

CA_DIRECTORY = Path("/etc/ssl/certs")


def open_http_client(base_url: str) -> AsyncClient:
    """A client for one endpoint. Only connecting has a time limit: the turn judges a stall (design, 6).

    Proxy variables of the environment are honoured, except for a loopback address, which no proxy can reach.
    """
    import httpx2

    parts = urlsplit(base_url)
    return httpx2.AsyncClient(
        # No TLS context for plain HTTP: making one reads the CA bundle, which is a tenth of a second.
        verify=_tls_context() if parts.scheme == "https" else False,
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        # The dispatcher bounds how many turns run at once; a second bound here would be a silent queue.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        follow_redirects=False,
        trust_env=not is_loopback(parts.hostname or ""),
    )


def clean_base_url(base_url: str) -> str:
    """`base_url` without what people paste after it, checked.

    Raises:
        ConfigurationError: it is no http or https URL.
    """
    text = base_url.strip()
    try:
        parts = urlsplit(text)
        _ = parts.port  # the property checks that it is a number
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not text.isprintable() or " " in text:
        shown = repr(text[:60].rpartition("@")[2])
        raise ConfigurationError(
            f"base URL {shown} is not an http:// or https:// address: such as http://127.0.0.1:11434/v1"
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def join_url(base_url: str, path: str) -> str:
    """`path` below `base_url`; a query of the base (an `api-version`) stays at the end."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, parts.query, ""))


def shown_url(url: str) -> str:
    """`url` as it may be printed: without credentials and query, which may hold a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine."""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _tls_context() -> ssl.SSLContext | bool:
    """A context that looks certificates up as needed, where the system keeps them by hash; else the default.

    Loading the whole bundle is 240 million instructions, the look-up a few: start-up time is a product goal.
    """
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return True
    try:
        is_hashed = any(path.name.endswith(".0") for path in CA_DIRECTORY.iterdir())
    except OSError:
        is_hashed = False
    if not is_hashed:
        return True
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(capath=str(CA_DIRECTORY))
    return context
