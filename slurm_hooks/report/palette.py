"""The colours of all pictures: the same use of a node always has the same colour.

They are from Okabe and Ito's set, which people with any kind of colour vision can distinguish. The
dashboard in etc/dashboards uses them too.
"""

from __future__ import annotations

OURS = "#009E73"
OTHERS = "#B8BEC6"
IDLE = "#E69F00"
RESERVED = "#CC79A7"
OUT = "#5B6470"
LOST = "#D55E00"
