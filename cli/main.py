"""Entry point: runs a command line and turns every outcome into an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main() -> None:
    """Run the process's own command line and exit with its code."""
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before or after the part of `run` that reports it properly
        code = 130
    sys.exit(code)


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code.

    0 done, 1 a judged failure, 2 wrong usage or input, 3 the environment lacks something, 130 interrupted.
    With `--json` among the arguments everything except the document, even what libraries write to file
    descriptor 1, goes to standard error.
    """
    from cli.errors import report
    from cli.output import ReaderGone, json_stdout

    options = argv[: argv.index("--")] if "--" in argv else argv
    as_json = "--json" in options
    verbose = "--verbose" in options or "-v" in options
    with json_stdout(as_json):
        try:
            from cli.app import app

            code = app(list(argv) or ["--help"], prog_name="kernelevolve", standalone_mode=False)
            if code == 130:  # what the parser makes of Ctrl-C
                raise KeyboardInterrupt
        except ReaderGone:
            return 141
        except (Exception, KeyboardInterrupt) as error:
            # A second Ctrl-C while children are being stopped ends the process at once.
            if isinstance(error, KeyboardInterrupt):
                signal.signal(signal.SIGINT, lambda *_: os._exit(130))
            try:
                return report(error, as_json=as_json, verbose=verbose)
            except ReaderGone:
                return 141
    return code if isinstance(code, int) else 0


if __name__ == "__main__":  # as a module, where the package is not installed
    main()
