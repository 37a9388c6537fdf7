"""Whether the owner of a run lives."""

from __future__ import annotations

import os
import subprocess
import sys

from engine.store.owner import describe, is_alive, lease_end, this_owner

PAST = "2001-01-01T00:00:00.000000Z"


def child_owner() -> tuple[subprocess.Popen[str], str]:
    script = "from engine.store.owner import this_owner; print(this_owner(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_this_process_lives_whatever_its_lease():
    assert is_alive(this_owner(), PAST)
    assert describe(this_owner()) == f"pid {os.getpid()} on {os.uname().nodename}"


def test_a_living_process_of_this_host_lives_although_its_lease_ran_out():
    child, owner = child_owner()
    assert is_alive(owner, PAST)
    end(child)


def test_a_killed_process_is_dead_at_once_also_before_it_is_reaped():
    child, owner = child_owner()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert not is_alive(owner, lease_end())
    end(child)
    assert not is_alive(owner, lease_end())


def test_a_later_process_with_the_same_pid_is_not_the_owner():
    host, pid, _, namespace = this_owner().split("/")
    assert not is_alive(f"{host}/{pid}/1/{namespace}", lease_end())


def test_the_lease_decides_for_other_hosts_other_containers_and_unknown_names():
    host, pid, start, namespace = this_owner().split("/")
    for owner in (f"other/{pid}/{start}/{namespace}", f"{host}/{pid}/{start}/{namespace}0", "somebody", ""):
        assert is_alive(owner, lease_end())
        assert not is_alive(owner, PAST)
