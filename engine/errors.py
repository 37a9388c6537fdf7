"""Errors a caller can act on: one class for each thing that a caller would do differently (style, 10)."""

from __future__ import annotations


class EngineError(Exception):
    """Something in the world, not in our code, is wrong; the text says what and how to go on, in one line."""


class UsageError(EngineError):
    """The request cannot be taken as it stands; nothing was stored (design, 9). Exit code 2."""


class EmptyPromptError(UsageError):
    """The prompt has no text and no text attachment."""

    def __init__(self) -> None:
        super().__init__("the prompt is empty: give it as an argument, by --file or on standard input")


class IllegalIdError(UsageError):
    """A run or session id has characters that ids may not have, or too many of them."""

    def __init__(self, kind: str, value: str) -> None:
        self.value = value
        shown = value if len(value) <= 40 else value[:37] + "..."
        super().__init__(
            f"illegal {kind} id {shown!r}: use 1 to 128 ASCII letters, digits and . _ : @ + -, "
            "starting with a letter or digit"
        )


class UnknownSessionError(UsageError):
    """No session has this id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"no session {session_id!r} in this store: `agent sessions` lists them")


class UnknownRunError(UsageError):
    """No run has this id."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"no run {run_id!r} in this store: `agent runs` lists them")


class RunIdConflictError(UsageError):
    """The run id is taken by another prompt or session (design, 8 and 9)."""

    def __init__(self, run_id: str, stored_hash: str, given_hash: str, *, why: str = "prompt") -> None:
        self.run_id = run_id
        self.stored_hash = stored_hash
        self.given_hash = given_hash
        super().__init__(
            f"run id {run_id!r} is taken by another {why} (its prompt is {stored_hash[:12]}, "
            f"yours is {given_hash[:12]}): choose another run id"
        )


class QueueFullError(UsageError):
    """Too many prompts wait in this session."""


class ConfigurationError(UsageError):
    """A setting, a model name or the environment is not usable."""


class EngineClosedError(EngineError):
    """The engine is closing and takes no more prompts."""

    def __init__(self) -> None:
        super().__init__("the engine is closing and takes no more prompts")


class StoreError(EngineError):
    """The store cannot be read or written: read-only, full, corrupt or locked; the text names its path."""


class StoreTimeoutError(StoreError):
    """The store stayed locked, or its disk hung, for longer than a call may wait."""


class StoreSchemaError(StoreError):
    """The store was written by a newer version of this program."""
