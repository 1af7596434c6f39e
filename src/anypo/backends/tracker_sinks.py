"""The libraries behind `--report-to`: each opens a run, writes to it and closes it."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from anypo.backends.tracker_facts import block, flat


class Sink(ABC):
    """One library: a run of it is opened, or taken up again, written to and closed."""

    module, package = "", ""

    @abstractmethod
    def open(self, name: str, out: Path, run: str, config: dict[str, Any]) -> str:
        """Begin, or go on with the run of that id (empty: a new one); returns its id."""

    def known(self) -> int | None:
        """The last iteration that the library has, where it can tell: a crash may lose some."""
        return None

    @abstractmethod
    def write(self, step: int, values: dict[str, float]) -> None:
        """The numbers of an iteration."""

    @abstractmethod
    def table(self, step: int, rows: list[dict[str, Any]]) -> None:
        """A few completions, made harmless."""

    @abstractmethod
    def close(self, stopped: bool) -> None:
        """Everything is written; `stopped`: the run was interrupted."""


class TensorBoard(Sink):
    """Event files in `tensorboard/` of the run's folder."""

    module, package = "tensorboard", "tensorboard"

    def open(self, name: str, out: Path, run: str, config: dict[str, Any]) -> str:
        """A writer beside the files of earlier sittings."""
        summary = import_module("torch.utils.tensorboard")
        self.writer = summary.SummaryWriter(str(out / "tensorboard"))
        if not run:
            self.writer.add_text("config", block(json.dumps(config, indent=1)), 0)
        return run or name

    def write(self, step: int, values: dict[str, float]) -> None:
        """Scalars, on the disk at once."""
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)
        self.writer.flush()

    def table(self, step: int, rows: list[dict[str, Any]]) -> None:
        """Completions as one text of literal lines."""
        text = "\n\n".join(json.dumps(row, indent=1, ensure_ascii=False) for row in rows)
        self.writer.add_text("completions", block(text), step)

    def close(self, stopped: bool) -> None:
        """Flush and close."""
        self.writer.close()


class WandB(Sink):
    """Weights & Biases, in the mode that `WANDB_MODE` says, writing into the run's folder.

    Neither code nor Git, console, machine or requirements are recorded.
    """

    module, package = "wandb", "wandb"

    def open(self, name: str, out: Path, run: str, config: dict[str, Any]) -> str:
        """A run of the project `anypo`, or of `WANDB_PROJECT`."""
        wandb = self.library = import_module("wandb")
        quiet = {"console": "off", "disable_git": True, "disable_code": True, "save_code": False}
        quiet |= {"x_disable_machine_info": True, "x_save_requirements": False}
        settings = wandb.Settings(**quiet, x_disable_meta=True, x_disable_stats=True)
        run = run or secrets.token_hex(4)
        project = os.environ.get("WANDB_PROJECT", "anypo")
        given = {"name": name, "id": run, "resume": "allow", "config": config}
        self.run = wandb.init(
            project=project, dir=str(out), settings=settings, reinit="create_new", **given
        )
        return run

    def write(self, step: int, values: dict[str, float]) -> None:
        """One row."""
        self.run.log(values, step=step)

    def table(self, step: int, rows: list[dict[str, Any]]) -> None:
        """A table of strings and numbers."""
        names = list(rows[0])
        data = [[row[n] for n in names] for row in rows]
        self.run.log({"completions": self.library.Table(columns=names, data=data)}, step=step)

    def close(self, stopped: bool) -> None:
        """Finish; an interrupted run is marked as such."""
        self.run.finish(exit_code=130 if stopped else 0)


class MLflow(Sink):
    """MLflow: what `MLFLOW_TRACKING_URI` says, else files in `mlruns/` beside the run's folder."""

    module, package = "mlflow", "mlflow-skinny"

    def open(self, name: str, out: Path, run: str, config: dict[str, Any]) -> str:
        """A run of the experiment `anypo`, or of `MLFLOW_EXPERIMENT_NAME`."""
        where = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not where:  # without a database library the skinny package has files alone
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            where = (out.resolve().parent / "mlruns").as_uri()
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # or each call waits minutes
        self.client = client = import_module("mlflow").MlflowClient(where)
        if run:
            client.update_run(run, status="RUNNING")
        else:
            title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "anypo")
            known = client.get_experiment_by_name(title)
            home = known.experiment_id if known else client.create_experiment(title)
            run = client.create_run(home, run_name=name).info.run_id
            entities = import_module("mlflow.entities")
            params = [entities.Param(k, str(v)[:6000]) for k, v in flat(config).items()]
            for start in range(0, len(params), 100):  # the most that a server takes at once
                client.log_batch(run, params=params[start : start + 100])
        self.run = run
        return run

    def write(self, step: int, values: dict[str, float]) -> None:
        """One batch of metrics."""
        entities, now = import_module("mlflow.entities"), int(time.time() * 1000)
        metrics = [entities.Metric(k, v, now, step) for k, v in values.items()]
        self.client.log_batch(self.run, metrics=metrics)

    def table(self, step: int, rows: list[dict[str, Any]]) -> None:
        """An artifact per iteration."""
        text = json.dumps(rows, indent=1, ensure_ascii=False)
        self.client.log_text(self.run, text, f"completions/step_{step:05d}.json")

    def close(self, stopped: bool) -> None:
        """Its final status."""
        self.client.set_terminated(self.run, "KILLED" if stopped else "FINISHED")


class Trackio(Sink):
    """trackio, on this machine: its own database, `TRACKIO_DIR` or its cache folder."""

    module, package = "trackio", "trackio"

    def open(self, name: str, out: Path, run: str, config: dict[str, Any]) -> str:
        """A run of the project `anypo`, or of `TRACKIO_PROJECT`; its name is its id."""
        trackio = self.library = import_module("trackio")
        run = run or f"{name}-{secrets.token_hex(2)}"
        project = os.environ.get("TRACKIO_PROJECT", "anypo")
        silent = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        with aside():
            self.run = trackio.init(project, run, config=config, resume="allow", **silent)
        self.project, self.name = project, run
        return run

    def known(self) -> int | None:
        """What has arrived in the database: it is written a moment later."""
        storage = import_module("trackio.sqlite_storage").SQLiteStorage
        return storage.get_max_step_for_run(self.project, self.name) or 0

    def write(self, step: int, values: dict[str, float]) -> None:
        """One row."""
        self.run.log(values, step=step)

    def table(self, step: int, rows: list[dict[str, Any]]) -> None:
        """A table."""
        columns = list(rows[0])
        data = [[row[name] for name in columns] for row in rows]
        self.run.log({"completions": self.library.Table(columns, data)}, step=step)

    def close(self, stopped: bool) -> None:
        """Wait until all is in the database."""
        with aside():
            self.library.finish()  # the run's own method would be called again at exit


@contextmanager
def aside() -> Iterator[None]:
    """What a library prints goes to the standard error: the standard output is a script's."""
    with redirect_stdout(sys.stderr):
        yield


SINKS: dict[str, type[Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""Name after `--report-to` → library."""
