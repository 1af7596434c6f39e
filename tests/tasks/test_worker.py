"""A child process that may hang, crash, exit or print, and is replaced."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anypo.core.errors import UsageError
from anypo.tasks.worker import Worker, WorkerDied, WorkerError, WorkerLate

HOSTILE = """
import os, sys, time
from anypo.core.errors import UsageError
def add(a, b): return a + b
def pid(): return os.getpid()
def hang(): time.sleep(60)
def spin(): return 9 ** 9 ** 9 ** 9
def die(): os._exit(7)
def leave(): sys.exit("bye")
def fail(): raise KeyError("no such thing")
def blame(): raise UsageError("mend it")
def chatter(): print("{}"); os.write(1, b"noise\\n"); return input is not None
def ask(): return sys.stdin.read()
def numbers(): return [float("nan"), float("inf"), 0.1]
def strange(): return {1, 2}
def order(): return list({"a", "b", "c", "d", "e", "f"})
def grow(): return len(bytearray(6 << 30))
def large(text): return len(text)
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile_functions.py").write_text(HOSTILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        made = Worker("hostile_functions", seconds=20, memory=4 << 30)
        yield made
        made.close()


def test_a_call_returns_and_the_process_stays(worker):
    assert worker.call("add", 2, 3) == 5
    assert worker.call("pid") == worker.call("pid") != os.getpid()


@pytest.mark.parametrize("function", ["hang", "spin"])
def test_a_call_that_hangs_is_killed_and_the_next_one_works(worker, function):
    before, begin = worker.call("pid"), time.monotonic()
    with pytest.raises(WorkerLate):
        worker.call(function, seconds=0.3)
    assert time.monotonic() - begin < 10
    assert worker.call("pid") != before
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


def test_a_crash_says_the_exit_status_and_the_next_call_works(worker):
    with pytest.raises(WorkerDied, match="7"):
        worker.call("die")
    assert worker.call("add", 1, 1) == 2


def test_errors_come_back_by_name(worker):
    with pytest.raises(WorkerError, match="KeyError: 'no such thing'"):
        worker.call("fail")
    with pytest.raises(WorkerError, match="SystemExit: bye"):
        worker.call("leave")
    with pytest.raises(UsageError, match=r"^mend it$"):
        worker.call("blame")
    with pytest.raises(WorkerError, match="set is not JSON"):
        worker.call("strange")


def test_prints_and_reads_do_not_disturb_the_replies(worker):
    assert worker.call("chatter") is True
    assert worker.call("ask") == ""
    assert worker.call("add", "a", "b") == "ab"


def test_numbers_that_are_none_cross(worker):
    nan, infinity, tenth = worker.call("numbers")
    assert math.isnan(nan) and infinity == math.inf and tenth == 0.1


def test_sets_have_the_same_order_in_every_child(worker):
    first = worker.call("order")
    worker.close()
    assert worker.call("order") == first


def test_memory_is_bounded(worker):
    with pytest.raises(WorkerError, match="MemoryError"):
        worker.call("grow")


def test_a_request_larger_than_a_pipe_crosses(worker):
    assert worker.call("large", "x" * 3_000_000) == 3_000_000


def test_a_module_that_cannot_be_imported_is_a_clear_error():
    with pytest.raises(UsageError, match=r"no_such_module.*install what is missing"):
        Worker("no_such_module").call("anything")


ORPHAN = """
import os
from anypo.tasks.worker import Worker
worker = Worker("os")
print(worker.call("getpid"), flush=True)
os.kill(os.getpid(), 9)
"""


def alive(process: int) -> bool:
    command = Path(f"/proc/{process}/cmdline")
    return command.exists() and command.read_bytes() != b""  # that of a zombie is empty


def test_a_child_does_not_outlive_a_killed_parent():
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-c", ORPHAN]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    child, end = int(ran.stdout), time.monotonic() + 10
    while alive(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert ran.returncode == -9 and time.monotonic() < end
