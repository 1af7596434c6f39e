"""A child process that runs functions which may hang, crash or eat memory, and can be killed.

Both directions speak JSON, one object a line, so nothing that comes back can run code here.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from io import StringIO
from threading import Event, Lock, Timer
from typing import Any

from anypo.core.errors import UsageError

START = 180.0  # seconds for the imports of a fresh child on a busy machine
GRACE = 30.0  # seconds after which a child ends itself if its parent died before killing it
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
    "from anypo.tasks.worker import serve; serve()"
)


class WorkerLate(Exception):
    """The call took too long; the child was killed, and the next call starts a fresh one."""


class WorkerDied(Exception):
    """The child ended by itself during the call: a crash, an exit, or no memory left."""


class WorkerError(Exception):
    """The function raised; the message is `Type: message`."""


class Worker:
    """Calls the functions of one module in a child process, with a time-out that kills.

    The child starts at the first call, stays for the next ones, and is started anew after a kill
    or a crash. Its hash seed is fixed, so that set order is the same in every run. What it prints
    goes to the standard error.

    Parameters
    ----------
    module : imported in the child when it starts; the time for that is not the calls'.
    seconds : time-out of a call.
    memory : limit of the child's address space in bytes, 0 for none (POSIX only).
    preload : slow modules to import at the start as well, so that no call's time pays for them.
    """

    def __init__(
        self, module: str, seconds: float = 60.0, memory: int = 0, preload: Sequence[str] = ()
    ) -> None:
        self.seconds = seconds
        self.start = {"modules": [*preload, module], "memory": memory}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def call(self, function: str, *arguments: Any, seconds: float = 0.0) -> Any:
        """The function's result, of JSON-able arguments.

        Raises `WorkerLate`, `WorkerDied`, `WorkerError`, or the function's own `UsageError`.
        """
        with self._lock:
            request = {"function": function, "arguments": arguments}
            return self._exchange(self._running(), request, seconds or self.seconds)

    def close(self) -> None:
        """End the child; a later call starts a fresh one."""
        if self._process is not None:
            _kill(self._process)
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = os.environ | {"PYTHONHASHSEED": "0"}
            if self.start["memory"]:  # each thread of a numeric library reserves address space
                environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            process = subprocess.Popen(
                [sys.executable, "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # a kill reaches its own children, an interrupt does not
            )
            weakref.finalize(self, _kill, process)
            self._process = process
            _send(process, sys.path)
            self._begin(process)
        return self._process

    def _begin(self, process: subprocess.Popen[bytes]) -> None:
        try:
            self._exchange(process, self.start, START)
        except (WorkerLate, WorkerDied, WorkerError) as error:
            self.close()
            why = f"{type(error).__name__} {error}".removeprefix("WorkerError ")
            cure = "install what is missing (pip install 'anypo[all]')"
            module = self.start["modules"][-1]
            raise UsageError(f"the worker of {module} does not start ({why}): {cure}") from error

    def _exchange(self, process: subprocess.Popen[bytes], request: Any, seconds: float) -> Any:
        late = Event()
        timer = Timer(seconds, _stop, [process, late])
        timer.start()
        try:
            _send(process, request | {"seconds": seconds})
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        if late.is_set() or not line.endswith(b"\n"):
            self.close()
        if not line.endswith(b"\n"):
            raise WorkerLate if late.is_set() else WorkerDied(f"exit status {process.wait()}")
        return _unpack(json.loads(line))


def _send(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message, default=str).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:  # the child is gone: the reply that is missing says so
        return


def _stop(process: subprocess.Popen[bytes], late: Event) -> None:
    late.set()
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _unpack(reply: Mapping[str, Any]) -> Any:
    if "usage" in reply:
        raise UsageError(reply["usage"])
    if "error" in reply:
        raise WorkerError(reply["error"])
    return reply["result"]


# ── the child's side ─────────────────────────────────────────────────────────────────────────────


def serve() -> None:
    """Answer requests until the parent closes the pipe: the first names the module."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a print of the function must not get between the replies
    sys.stdin = StringIO()  # nor may an input() eat a request
    module: Any = None
    for line in requests:
        request = json.loads(line)
        _alarm(request["seconds"] + GRACE)
        if "modules" in request:
            _limit(request["memory"])
            reply = _reply(_import, request["modules"])
            module = sys.modules.get(request["modules"][-1])
        else:
            reply = _reply(getattr(module, request["function"]), *request["arguments"])
        replies.write(_line(reply))
        replies.flush()
        _alarm(0.0)


def _reply(function: Any, *arguments: Any) -> dict[str, Any]:
    try:
        return {"result": function(*arguments)}
    except UsageError as error:
        return {"usage": str(error)}
    except BaseException as error:  # sys.exit and the like are the caller's to judge, too
        return {"error": f"{type(error).__name__}: {error}"}


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)


def _line(reply: dict[str, Any]) -> bytes:
    try:
        return json.dumps(reply).encode() + b"\n"
    except (TypeError, ValueError) as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n"


def _alarm(seconds: float) -> None:
    """The kernel ends this process then, even inside one long C call, if the parent did not."""
    if os.name == "posix":
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit(memory: int) -> None:
    if memory and os.name == "posix":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
