"""The engine process as it is, but with a checkpoint after every epoch, whatever the epoch cost.

python -m tests.process.keeping --checkpoint-dir FOLDER ...
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import engine.server.__main__
from engine.server import checkpoints

ALWAYS = checkpoints.When(seconds=0.0, fraction=0.0, least=0.0)


def main() -> int:
    kept: Any = checkpoints
    # On a busy machine, a low priority means never.
    os.nice = lambda increment: 0
    kept._LOOK_SECONDS, kept._SHARE_OF_TIME = 0.0, 0
    command: Any = engine.server.__main__
    command.Checkpoints = partial(checkpoints.Checkpoints, when=ALWAYS)
    return engine.server.__main__.main()


if __name__ == "__main__":
    sys.exit(main())
