"""Small logs, and a way to put them into files."""

from __future__ import annotations

import gzip
from pathlib import Path

IDLE = """# a small machine. duration_s=500
node,column,idle_from_s,idle_to_s
a,0,0,100
a,0,200,300.5
b,7,50,60
"""


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def swf(number, submit, wait, run, nodes, request, queue=1):
    fields = [
        number,
        submit,
        wait,
        run,
        nodes,
        -1,
        -1,
        nodes,
        request,
        *[-1] * 5,
        queue,
        -1,
        -1,
        -1,
    ]
    return " ".join(map(str, fields)) + "\n"


SWF = (
    "; MaxNodes: 4\n; StartTime: then (window 0 .. 100 s)\n"
    + swf(1, 0, 0, 40, 3, 50, queue=3)
    + swf(2, 10, 30, 20, 4, 20)
    + swf(3, 20, 100, 20, 1, 20, queue=4)
    + swf(4, 20, 0, 0, 1, 20)
)


SCALING = '{"scaling": {"toy": {"nodes": [0, 1, 2], "images_per_s": [0, 10, 18]}}}'
