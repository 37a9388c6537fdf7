"""The store's thread: order, cancellation with a known outcome, and bounds when the disk hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable

import anyio
import pytest
from anyio import to_thread

from engine.errors import StoreError, StoreTimeoutError
from engine.store.worker import Patience, StoreThread

pytestmark = pytest.mark.anyio


class Disk:
    """A job that blocks in the thread, as a hung disk does, until it is released."""

    def __init__(self) -> None:
        self.runs = 0
        self._is_running = threading.Event()
        self._is_released = threading.Event()

    def job(self, patience: Patience) -> str:
        self.runs += 1
        self._is_running.set()
        self._is_released.wait(20)
        return "saved"

    def release(self) -> None:
        self._is_released.set()

    async def wait_running(self) -> None:
        assert await to_thread.run_sync(self._is_running.wait, 5)


@pytest.fixture
def disk() -> AsyncIterator[Disk]:
    made = Disk()
    yield made
    made.release()


def counting(ran: list[str], name: str) -> Callable[[Patience], str]:
    def job(patience: Patience) -> str:
        ran.append(name)
        return name

    return job


async def test_a_job_that_has_not_begun_is_withdrawn_by_a_cancel_and_never_runs(disk: Disk):
    thread, ran = StoreThread("here"), []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.call, disk.job)
            await disk.wait_running()
            with anyio.move_on_after(0) as scope:
                await thread.call(counting(ran, "withdrawn"))
            assert scope.cancelled_caught
            disk.release()
            assert await thread.call(counting(ran, "next")) == "next"
    assert ran == ["next"]


async def test_a_running_job_is_waited_for_after_a_cancel_and_its_result_returned(disk: Disk):
    thread, results = StoreThread("here"), []

    async def save(scope: anyio.CancelScope) -> None:
        with scope:
            results.append(await thread.call(disk.job))
            await anyio.lowlevel.checkpoint()
            results.append("the cancel did not strike at the next checkpoint")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(save, scope)
            await disk.wait_running()
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            disk.release()
    assert results == ["saved"]


async def test_a_running_job_that_fails_after_a_cancel_lets_the_cancellation_go_on(caplog: pytest.LogCaptureFixture):
    thread, is_running = StoreThread("here"), threading.Event()

    def waits_for_a_lock(patience: Patience) -> None:
        is_running.set()
        while not patience.is_over():
            patience.pause(20)
        raise StoreTimeoutError("here is locked")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.call, waits_for_a_lock)
            await to_thread.run_sync(is_running.wait, 5)
            tasks.cancel_scope.cancel()
    assert "here is locked" in caplog.text


async def test_a_shielded_deadline_holds_although_the_disk_hangs(disk: Disk, caplog: pytest.LogCaptureFixture):
    thread = StoreThread("/data/agent.db", grace_seconds=0.05)
    started = anyio.current_time()
    with anyio.CancelScope() as run:
        run.cancel()
        with anyio.move_on_after(0.1, shield=True) as saving:
            await thread.call(disk.job)
    assert saving.cancelled_caught
    assert anyio.current_time() - started < 2
    assert "the store /data/agent.db hangs" in caplog.text


async def test_a_hung_disk_ends_a_call_with_an_error_that_names_the_store(disk: Disk):
    thread, ran = StoreThread("/data/agent.db", wait_seconds=0.1, grace_seconds=0.05), []
    with anyio.fail_after(5):
        with pytest.raises(StoreTimeoutError, match=r"/data/agent\.db .* is not known"):
            await thread.call(disk.job)
        with pytest.raises(StoreTimeoutError, match=r"/data/agent\.db .* nothing was written"):
            await thread.call(counting(ran, "behind it"))
        disk.release()
        assert await thread.call(counting(ran, "later")) == "later"
    assert ran == ["later"]


async def test_an_error_travels_to_its_caller_and_the_thread_goes_on():
    thread = StoreThread("here")

    def fails(patience: Patience) -> None:
        raise KeyError("k")

    with anyio.fail_after(5):
        with pytest.raises(KeyError):
            await thread.call(fails)
        assert await thread.call(lambda patience: 7) == 7


async def test_closing_runs_what_was_called_before_it_also_in_a_cancelled_scope(disk: Disk):
    thread, ran = StoreThread("here"), []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.call, disk.job)
            await disk.wait_running()
            disk.release()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await thread.close(lambda patience: ran.append("closed"))
    assert ran == ["closed"]
    assert thread._thread is not None
    assert not thread._thread.is_alive()
    with pytest.raises(StoreError, match="here is closed"):
        await thread.call(lambda patience: None)
    await thread.close(lambda patience: ran.append("again"))
    assert ran == ["closed"]


async def test_closing_is_bounded_when_the_disk_hangs(disk: Disk, caplog: pytest.LogCaptureFixture):
    thread = StoreThread("/data/agent.db", close_seconds=0.05, grace_seconds=0.05)
    with anyio.fail_after(5):
        with anyio.move_on_after(0.05):
            await thread.call(disk.job)
        await thread.close(lambda patience: None)
    assert "/data/agent.db did not close" in caplog.text


def test_a_hung_disk_does_not_keep_the_process_from_ending():
    script = (
        "import anyio, threading\n"
        "from engine.store.worker import StoreThread\n"
        "async def main():\n"
        "    with anyio.move_on_after(0.05):\n"
        "        await StoreThread('x', grace_seconds=0.05).call(lambda patience: threading.Event().wait())\n"
        "anyio.run(main)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == 0


def test_a_loop_that_ends_before_its_job_does_no_harm_to_the_next(anyio_backend: str, disk: Disk):
    thread = StoreThread("here", grace_seconds=0.01)

    async def leave() -> None:
        with anyio.move_on_after(0.01):
            await thread.call(disk.job)

    anyio.run(leave, backend=anyio_backend)
    disk.release()
    assert anyio.run(thread.call, lambda patience: 7, backend=anyio_backend) == 7
