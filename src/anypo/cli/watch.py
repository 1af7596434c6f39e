"""`anypo watch`: the report of a run while it goes, in a browser on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anypo.cli.options import Flag, gather, parse


@dataclass(frozen=True)
class Watch:
    """Serve the live report of a run on 127.0.0.1, until Ctrl-C."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """the run's folder; the run may be going on, or over"""
    port: Annotated[int, tyro.conf.arg(help="of the page; 0 takes a free one")] = 7007
    open: Flag = False
    """also open the page in the browser"""


def run(words: list[str]) -> int:
    """Print where the page is, and serve it until interrupted."""
    options = parse(Watch, gather(Watch, words), "watch")
    from anypo.core.errors import UsageError
    from anypo.report.live import Server
    from anypo.report.text import visible

    if not 0 <= options.port < 65536:
        raise UsageError(f"port={options.port}: a port is a number from 0 to 65535")
    with Server(options.run, options.port) as server:
        print(f"{server.url} shows {visible(options.run)}; Ctrl-C ends it", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
