"""Runs of a comparison in processes of their own: several at once, none takes the others down.

A worker reads one run per line on its standard input and answers in lines of JSON. It ends when its
input does, in the middle of a run too, so that no run goes on when the comparison was killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from anypo.api.contest import Trial
from anypo.core.errors import UsageError
from anypo.engine.callbacks import Callback

Event = dict[str, Any]
"""`begin`; `row` of an iteration; `done` or `failed` with its reason, which is the last one."""

Tell = Callable[[Trial, Event], None]
THREADS = "OMP_NUM_THREADS"
SHOWN = ("step", "sampled", "num_tokens", "step_time", "reward")
LOG = "workers.log"
START = "from anypo.api.workers import serve; serve()"


class Rows(Callback):
    """Tells of every iteration what a comparison shows, and every held-out measurement."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.tell = tell

    def on_iteration(self, row: dict[str, Any]) -> None:
        """A row, in short."""
        self.tell({"row": {k: row[k] for k in row if k in SHOWN or k.startswith("held_out/")}})


def perform(
    trial: Mapping[str, Any],
    tell: Callable[[Event], None],
    objects: Callable[[int], Mapping[str, Any]] = lambda seed: {},
) -> Event:
    """Make one run and its report in this process; the last event, `done` or `failed`.

    `objects` makes what the plain data of the trial cannot hold, for its seed: policies and tasks.
    """
    from anypo.api.names import load_recipe
    from anypo.api.train import train

    try:
        run = train(
            load_recipe(trial["recipe"]),
            out=trial["out"],
            name=trial["name"] or trial["label"],
            arguments=trial["given"],
            callbacks=[Rows(tell)],
            **{**trial["common"], **objects(trial["settings"]["seed"])},
            **trial["settings"],
        )
        if not trial["tuning"]:
            run.report  # noqa: B018
    except UsageError as error:
        return {"failed": str(error)}
    except Exception as error:  # a failed run is shown as that, and does not end the others
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"done": True}


def serve() -> None:
    """The worker: runs as they come in, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the comparison to hear
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a run or a reward function prints is no answer
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, waiting), daemon=True).start()
    tell = lambda event: print(json.dumps(event), file=answers)  # noqa: E731
    while True:
        data = json.loads(waiting.get())
        sys.argv = ["anypo", *data["words"]]
        tell(perform(data["trial"], tell))


def _listen(lines: IO[str], waiting: queue.SimpleQueue[str]) -> None:
    for line in lines:
        waiting.put(line)
    os._exit(0)  # whoever asked is gone


class Worker:
    """The other end: a process that is started when it is needed, and again after it died."""

    def __init__(self, threads: int, log: Path) -> None:
        self.threads, self.log = threads, log
        self.process: subprocess.Popen[str] | None = None
        self.lock, self.stopped = threading.Lock(), False

    def perform(self, trial: Trial, tell: Tell) -> Event:
        """Have one run made; the last event."""
        with self.lock:
            if self.stopped:
                return {"failed": "interrupted"}
            process = self.process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({"trial": trial.as_dict(), "words": trial.words}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                event = json.loads(line)
                if "row" not in event:
                    return event
                tell(trial, event)
        except BrokenPipeError:
            pass
        code, self.process = process.wait(), None
        how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
        return {"failed": f"its process {how}; what it said is in {self.log}"}

    def _start(self) -> subprocess.Popen[str]:
        with self.log.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={THREADS: str(self.threads), **os.environ},
                text=True,
            )
        return self.process

    def stop(self) -> None:
        """End the process, whatever it does."""
        with self.lock:
            self.stopped = True
            if self.process:
                self.process.kill()
                self.process.wait()


def run_all(trials: Sequence[Trial], jobs: int, threads: int, log: Path, tell: Tell) -> None:
    """Have runs made, `jobs` at a time, in the given order; `tell` hears of everything, in turns.

    An interruption ends the workers, and is raised again.
    """
    waiting: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    for trial in trials:
        waiting.put(trial)
    lock = threading.Lock()

    def told(trial: Trial, event: Event) -> None:
        with lock:
            tell(trial, event)

    workers = [Worker(threads, log) for _ in range(min(jobs, len(trials)))]
    over = threading.Event()
    makers = [threading.Thread(target=_drain, args=(w, waiting, told, over)) for w in workers]
    try:
        for maker in makers:
            maker.daemon = True
            maker.start()
        while any(maker.is_alive() for maker in makers):
            for maker in makers:
                maker.join(0.1)
    finally:
        over.set()
        for worker in workers:
            worker.stop()


def _drain(
    worker: Worker, waiting: queue.SimpleQueue[Trial], tell: Tell, over: threading.Event
) -> None:
    while not over.is_set():
        try:
            trial = waiting.get_nowait()
        except queue.Empty:
            return
        tell(trial, {"begin": True})
        last = worker.perform(trial, tell)
        if not over.is_set():
            tell(trial, last)
