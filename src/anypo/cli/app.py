"""Which command runs, and what becomes of its errors."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper

from anypo import __version__
from anypo.core.errors import UsageError, nearest
from anypo.report.text import visible

COMMANDS = {
    "train": "improve a policy on a task; without arguments: the demonstration",
    "evaluate": "a policy on questions, by greedy answers and samples, with 95 % intervals",
    "generate": "what a policy answers to a prompt",
    "export": "a run's policy for other software to load, with a model card",
    "methods": "what there is, filtered by axis, piece or domain",
    "show": "one method: its equations, its pieces, every field, its source",
    "diff": "the fields in which two methods differ, and what that does to gradients",
    "cite": "the papers of a method, and what of them was used",
    "translate": "a configuration of TRL, verl or Stable-Baselines3 as a command of this one",
    "verify": "check methods against files of reference numbers",
    "compare": "methods side by side, under equal budgets, with intervals",
    "report": "write the report page of a run",
    "watch": "the same page in a browser, live while the run goes",
    "doctor": "what is wrong with a run, how that shows, and what to try",
}
"""Every command is a module of this name beside this file, with `run(words) -> int`."""

USAGE = """usage: anypo COMMAND [arguments]

Any policy, any policy optimization.

{commands}

anypo COMMAND --help lists a command's options, anypo --version prints the version.
"""

MENDABLE = frozenset(
    {errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.EDQUOT, errno.EISDIR}
)
"""Errors of the file system that a user can mend; others are defects and keep their traceback."""


def run(words: list[str]) -> int:
    """Dispatch a command line; a mendable error becomes one sentence on the standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a formula must not end a run where ASCII is spoken
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # tyro has printed a help page
        return int(stop.code or 0)
    except UsageError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        goes_on = words[:1] in (["train"], ["compare"])
        again = "; run the same command to go on" if goes_on else ""
        print(f"interrupted{again}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `anypo methods | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if (error.name or "anypo").startswith("anypo"):
            raise
        return _fail(f"{error.name} is not installed: pip install 'anypo[all]' brings it")
    except OSError as error:
        if error.errno not in MENDABLE:
            raise
        if error.errno == errno.ENOSPC:
            return _fail("no space left on the disk: free some, then run the same command to go on")
        return _fail(f"{error.filename or 'a file'} cannot be used: {error.strerror}")


def _fail(text: str) -> int:
    print(f"error: {visible(text)}", file=sys.stderr)
    return 2


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE.format(commands="\n".join(f"  {k:9} {v}" for k, v in COMMANDS.items())))
        return 0
    if words[0] == "--version":
        print(f"anypo {__version__}")
        return 0
    if words[0] not in COMMANDS:
        known = f" (commands: {', '.join(COMMANDS)})"
        raise UsageError(f"unknown command {words[0]!r}{nearest(words[0], COMMANDS)}{known}")
    command: Callable[[list[str]], int] = import_module(f"anypo.cli.{words[0]}").run
    return command(words[1:])
