"""A store that fails or hangs at a chosen call, and remembers how it was called, for tests of whoever uses a store."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

import anyio

from engine.errors import StoreError
from engine.store.base import Store


class Fault(Enum):
    """BEFORE: nothing was written. AFTER: it was committed, yet the call fails. HANG: it never comes back."""

    BEFORE = "before"
    AFTER = "after"
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: was it made in a cancelled scope (no shield in between), and did the scope have a deadline."""

    name: str
    args: tuple[Any, ...]
    is_cancelled: bool
    has_deadline: bool


class FaultyStore:
    """`inner`, but the calls from number `fail_at` (from 1; `only` these methods counted) meet the `fault`.

    `is_permanent`: all later ones do too. `open`, `close` and `change_stamp` are passed on uncounted.
    """

    def __init__(
        self,
        inner: Store,
        *,
        fail_at: int | None = None,
        fault: Fault = Fault.BEFORE,
        only: Collection[str] | None = None,
        is_permanent: bool = False,
    ) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self.hanging = anyio.Event()
        self._fail_at = fail_at
        self._fault = fault
        self._only = only
        self._is_permanent = is_permanent
        self._counted = 0

    @property
    def location(self) -> str:
        return self.inner.location

    def change_stamp(self) -> object:
        return self.inner.change_stamp()

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    def names(self) -> list[str]:
        """The methods called, in order."""
        return [call.name for call in self.calls]

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.inner, name)
        if name.startswith("_") or not callable(method):
            raise AttributeError(name)

        async def call(*args: Any, **options: Any) -> Any:
            deadline = anyio.current_effective_deadline()
            self.calls.append(Call(name, args, deadline == -math.inf, math.isfinite(deadline)))
            if not self._is_struck(name):
                return await method(*args, **options)
            if self._fault is Fault.HANG:
                self.hanging.set()
                await anyio.sleep_forever()
            if self._fault is Fault.AFTER:
                await method(*args, **options)
            raise StoreError(f"the store {self.location} cannot be used: fault of call {self._counted}, {name}")

        return call

    def _is_struck(self, name: str) -> bool:
        if self._only is not None and name not in self._only:
            return False
        self._counted += 1
        if self._fail_at is None:
            return False
        return self._counted == self._fail_at or (self._is_permanent and self._counted > self._fail_at)
