"""The picture of a peer's run, drawn last and in memory of its own.

To draw takes as much memory as some devices have to spare, on top of all that a peer needed to learn. So when the
results are written the peer's process begins anew as one that knows nothing but how to draw.

    python -m dracofl.experiments.picture RUN_FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from dracofl.errors import DracoError, Interrupted
from dracofl.experiments.figures import draw_curves
from dracofl.telemetry.folder import RunFolder


def draw_picture(folder: RunFolder) -> bool:
    """From the tables and the summary; false if nothing was measured."""
    metrics = folder.read_table("metrics")
    if len(metrics):
        draw_curves(metrics, folder.read_summary(), folder.picture_file)
    return bool(len(metrics))


def end_with_picture(path: Path) -> NoReturn:
    """The last act of a process: nothing of it is left afterwards."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "dracofl.experiments.picture", str(path)])


def main() -> NoReturn:
    folder, code = RunFolder(Path(sys.argv[1])), 0
    try:
        if draw_picture(folder):
            print(f"picture     {folder.picture_file}")
    except DracoError as error:
        print(f"draco: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("stopped before the picture was drawn; all else is in the folder", file=sys.stderr)
        code = Interrupted.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # at once: threads of Arrow's that are just being started would abort a process that takes its time


if __name__ == "__main__":
    main()
