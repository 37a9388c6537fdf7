"""The store's thread: jobs run in the order in which they are called, and their outcome is always known (design, 7).

One daemon thread owns the connection and is never abandoned. A caller puts its job in the queue before it waits for
the first time, so the order of calls is the order of transactions on every backend. What a cancel does to a caller:

* its job has not begun: it is withdrawn, certain never to run, and the cancellation goes on;
* its job runs: it is told to stop retrying a locked database, and the caller waits for it, shielded, for
  `GRACE_SECONDS`. Is it done by then, its result is returned (the cancel strikes at the next checkpoint); did it fail,
  or does the disk hang, the cancellation goes on, and the log says which.

So the deadline of a shielded scope round a call (a run's last words) holds to within the grace, whatever the disk does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import anyio
from anyio.lowlevel import EventLoopToken, checkpoint_if_cancelled, current_token

from engine.errors import StoreError, StoreTimeoutError
from engine.limits import STORE_WAIT_SECONDS

logger = logging.getLogger(__name__)

T = TypeVar("T")

GRACE_SECONDS = 1.0
"""How long a cancelled caller waits for a job that runs: many times a commit, and the second of design, 8."""

CLOSE_SECONDS = 5.0
"""How long closing waits for what was begun before it lets the process end without it."""


class Patience:
    """How long a job goes on trying: until its deadline, or until its caller gives up."""

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self._deadline = time.monotonic() + wait_seconds
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """The caller waits no longer; from any thread."""
        self._given_up.set()

    def is_over(self) -> bool:
        """Whether there is no use in another attempt."""
        return self._given_up.is_set() or time.monotonic() >= self._deadline

    def pause(self, seconds: float) -> None:
        """Block this thread for a moment, less if the patience ends."""
        self._given_up.wait(max(0.0, min(seconds, self._deadline - time.monotonic())))


class _JobState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    WITHDRAWN = "withdrawn"


class _Job(Generic[T]):
    """One call on its way through the thread. `state` changes under the worker's lock."""

    def __init__(self, work: Callable[[Patience], T], patience: Patience) -> None:
        self.work = work
        self.patience = patience
        self.state = _JobState.WAITING
        self.finished = anyio.Event()
        self.error: BaseException | None = None
        self.value: T
        self._token: EventLoopToken = current_token()

    def wake_caller(self) -> None:
        """Set `finished` in the caller's loop; never waits for that loop, which may be busy or gone."""
        token = self._token
        try:
            token.backend_class.run_sync_soon(self.finished.set, (), token.native_token)
        except anyio.RunFinishedError:
            logger.debug("the event loop ended before its store call did")

    def result(self) -> T:
        """What the job gave, once it is done."""
        if self.error is not None:
            raise self.error
        return self.value


class StoreThread:
    """Runs blocking jobs one after another in a thread of its own, which starts with the first call."""

    def __init__(
        self,
        location: str,
        *,
        wait_seconds: float = STORE_WAIT_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._location = location
        self._wait_seconds = wait_seconds
        self._grace_seconds = grace_seconds
        self._close_seconds = close_seconds
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def call(self, work: Callable[[Patience], T]) -> T:
        """Run `work` in the thread and return its result; cancellation as the module says.

        Raises:
            StoreTimeoutError: it did not end in `wait_seconds` and the grace; the text says whether it ran.
            StoreError: the store is closed.
        """
        await checkpoint_if_cancelled()  # lets no other task in unless it raises: no call overtakes this one
        job = self._put(work)
        try:
            with anyio.move_on_after(self._wait_seconds + self._grace_seconds):
                await job.finished.wait()
        except anyio.get_cancelled_exc_class():
            if not await self._wait_grace(job):
                raise
        if job.state is not _JobState.DONE:
            raise self._timeout(job)
        return job.result()

    async def close(self, last: Callable[[Patience], None]) -> None:
        """Run what was called before, then `last`, and end the thread; bounded, and shielded from cancels."""
        if self._is_closed:
            return
        job = self._put(last) if self._thread is not None else None
        self._is_closed = True
        self._jobs.put(None)
        if job is None or self._thread is None:
            return
        with anyio.move_on_after(self._close_seconds, shield=True):
            await job.finished.wait()
        if job.state is not _JobState.DONE:
            job.patience.give_up()
            logger.error("the store %s did not close in %g s and is left as it is", self._location, self._close_seconds)
            return
        self._thread.join(self._grace_seconds)  # it has nothing left to do but to return
        if job.error is not None:
            logger.error("the store %s did not close well: %s", self._location, job.error)

    def _put(self, work: Callable[[Patience], T]) -> _Job[T]:
        if self._is_closed:
            raise StoreError(f"the store {self._location} is closed")
        job = _Job(work, Patience(self._wait_seconds))
        self._jobs.put(job)
        if self._thread is None:
            # A daemon: a hung disk must not keep the process from ending.
            self._thread = threading.Thread(target=self._serve, name="store", daemon=True)
            self._thread.start()
        return job

    async def _wait_grace(self, job: _Job[Any]) -> bool:
        """After a cancel: whether the job was done all the same. It is not running afterwards, or it is logged."""
        if self._withdraw(job):
            return False
        job.patience.give_up()
        with anyio.move_on_after(self._grace_seconds, shield=True):
            await job.finished.wait()
        if job.state is not _JobState.DONE:
            logger.error("the store %s hangs: whether a cancelled call was saved is not known", self._location)
            return False
        if job.error is not None:
            logger.warning("a cancelled call to the store was not carried out: %s", job.error)
        return job.error is None

    def _withdraw(self, job: _Job[Any]) -> bool:
        with self._lock:
            if job.state is _JobState.WAITING:
                job.state = _JobState.WITHDRAWN
        return job.state is _JobState.WITHDRAWN

    def _timeout(self, job: _Job[Any]) -> StoreTimeoutError:
        waited = f"{self._wait_seconds + self._grace_seconds:g} s"
        if self._withdraw(job):
            return StoreTimeoutError(
                f"the store {self._location} was busy for {waited}, nothing was written: try again, or check its disk"
            )
        job.patience.give_up()
        return StoreTimeoutError(
            f"the store {self._location} has not answered for {waited}, whether the last change was saved is not "
            "known: check its disk"
        )

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.state is _JobState.WITHDRAWN:
                    continue
                job.state = _JobState.RUNNING
            try:
                job.value = job.work(job.patience)
            except BaseException as error:  # noqa: BLE001 - not handled here: it travels to the caller
                job.error = error
            with self._lock:
                job.state = _JobState.DONE
            job.wake_caller()
            del job  # an idle thread keeps nothing alive
