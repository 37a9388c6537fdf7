"""The wall clock, in the one form that is stored and shown: UTC, in ISO 8601 with microseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def now_utc() -> str:
    """The present moment as ``2026-11-30T10:04:34.123456Z``; such strings sort by time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
