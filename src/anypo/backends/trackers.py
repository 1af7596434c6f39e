"""Trackers as callbacks of a run: what it measures, in TensorBoard, W&B, MLflow and trackio too.

```python
anypo.train("grpo", "tiny", "first_letter", callbacks=trackers.make("tensorboard", "", "mine"))
```
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anypo.backends.tracker_facts import config, flat, kept, numbers, remember, sample
from anypo.backends.tracker_sinks import SINKS, Sink
from anypo.core.errors import UsageError, nearest
from anypo.engine.callbacks import Callback
from anypo.engine.log import read

Notice = Callable[[str], None]
EVERY = 10
"""Iterations between tables of completions; the first is always written."""

PATIENCE = 3
"""Failures in a row after which a library is left alone for the rest of a sitting."""


def make(
    names: str | Iterable[str], out: str | Path, name: str, notice: Notice | None = None
) -> list[Callback]:
    """The trackers of a run, one callback each; `none` and nothing are no tracker.

    Parameters: `names` (`"tensorboard,wandb"`, or several words), `out` (the run's folder, where
    `on_start` does not say it), `name` (how the run is called there), `notice` (is told in a
    sentence what does not work; default a Python warning).
    Raises `UsageError` for an unknown name and for a library that is not installed. No library is
    imported before the run starts.
    """
    words = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    chosen = list(dict.fromkeys(w.strip().lower() for w in words if w.strip().lower() != "none"))
    for word in chosen:
        if word not in SINKS:
            known = f" (there are {', '.join(SINKS)})"
            raise UsageError(f"there is no tracker {word!r}{nearest(word, SINKS)}{known}")
        if find_spec(SINKS[word].module) is None:
            package = SINKS[word].package
            raise UsageError(
                f"{package} is not installed, and --report-to {word} needs it: "
                f"pip install {package}"
            )
    return [Tracker(word, SINKS[word](), Path(out or "."), name, notice) for word in chosen]


class Tracker(Callback):
    """A run told to one library; whatever goes wrong there is said once and ends nothing.

    The run's id and the last iteration written are kept in `trackers.json` of the run's folder: a
    run that goes on is the same run there, no iteration is written twice, and those that came
    before the tracker was asked for are made up for.
    """

    def __init__(
        self, word: str, sink: Sink, out: Path, name: str, notice: Notice | None = None
    ) -> None:
        self.word, self.sink, self.out, self.name = word, sink, out, name
        self._notice = notice or (lambda text: warnings.warn(text, stacklevel=2))
        self._open, self._said = False, False
        self._failed, self._shown = 0, -EVERY
        self.run, self.last = "", 0

    def on_start(self, facts: dict[str, Any]) -> None:
        """Open the run there, and make up for what `metrics.jsonl` has already."""
        self.out = Path(facts.get("out") or self.out)
        self._attempt(self._start, facts)
        if not self._open:
            return
        self._end = weakref.finalize(self, _close, self.sink)  # Ctrl-C and crashes end here
        metrics = self.out / "metrics.jsonl"
        for row in read(metrics) if metrics.exists() else ():
            self._attempt(self._write, row)

    def on_iteration(self, row: dict[str, Any]) -> None:
        """The numbers of an iteration, and now and then some completions."""
        step = row["step"]
        if not self._open or step <= self.last or not self._attempt(self._write, row):
            return
        if step - self._shown >= EVERY:
            self._attempt(self._show, step)

    def on_end(self, scores: dict[str, Any]) -> None:
        """The scores, at the last iteration; then the run is closed there."""
        if self._open:
            self._attempt(self.sink.write, self.last, numbers(flat(scores, dot="/")))
            self._leave(stopped=False)

    def _start(self, facts: dict[str, Any]) -> None:
        before = kept(self.out).get(self.word, {})
        self.run = self.sink.open(self.name, self.out, before.get("run", ""), config(facts))
        self.last, self._open = before.get("last", 0), True
        if self.last and (there := self.sink.known()) is not None:
            self.last = min(self.last, there)
        remember(self.out, self.word, self.run, self.last)

    def _write(self, row: dict[str, Any]) -> None:
        if self._open and row["step"] > self.last:
            self.sink.write(row["step"], numbers(row))
            self.last = row["step"]
            remember(self.out, self.word, self.run, self.last)

    def _show(self, step: int) -> None:
        if rows := sample(self.out, step):
            self.sink.table(step, rows)
            self._shown = step

    def _leave(self, stopped: bool) -> None:
        self._end.detach()
        self._open = False
        self._attempt(self.sink.close, stopped)

    def _attempt(self, call: Callable[..., Any], *given: Any) -> bool:
        try:
            call(*given)
            self._failed = 0
        except Exception as error:  # a tracker must never end a run, whatever its library raises
            self._failed += 1
            if not self._said:
                self._said = True
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                self._notice(f"{self.word} does not work, and the run goes on without: {reason}")
            if self._open and self._failed >= PATIENCE:
                self._leave(stopped=True)
        return not self._failed


def _close(sink: Sink) -> None:
    try:
        sink.close(True)
    except Exception as error:
        warnings.warn(f"a tracker could not be closed: {error}", stacklevel=2)
