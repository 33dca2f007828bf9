"""The process that embeds with the next model while the old one answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kb import KnowledgeBase

LOG = "reembed.log"
_AFTER_FAILURE_S = 60.0  # every query would start a process that fails, too
# Lower priority than whoever asks; the packages of the process that starts it, wherever it was started.
_PROGRAM = (
    "import os, sys; os.nice(10); sys.path.insert(0, sys.argv[1]); "
    "from cli.main import run; sys.exit(run(['kb', 'reembed', '--json']))"
)


def start_reembedding(kb: KnowledgeBase) -> bool:
    """Start `kernelevolve kb reembed` on its own, unless a process is at it. Its output goes to LOG."""
    from kb.reembed import running

    if running(kb.home):
        return False
    root = str(Path(__file__).resolve().parent.parent)
    with (kb.home / LOG).open("wb") as log:
        subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, root],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "KERNELEVOLVE_HOME": str(kb.home)},
            start_new_session=True,  # neither Ctrl-C nor a closed terminal ends it
        )
    return True


def keep_reembedding(kb: KnowledgeBase) -> None:
    """See to it that the model that the settings name is being prepared, where another one answers."""
    from kb.tables import now

    if kb.serving.next is None:
        return
    known = kb.serving.record.next()
    if known is None or not known.error or (now() - known.updated).total_seconds() > _AFTER_FAILURE_S:
        start_reembedding(kb)
