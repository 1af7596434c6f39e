"""The command line: `main` parses, calls `anypo.api`, and prints for a person or for a script."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 done, 1 a check failed, 2 usage, 130 interrupted."""
    from anypo.cli.app import run

    return run(list(sys.argv[1:] if argv is None else argv))
