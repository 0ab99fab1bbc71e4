"""The colours of all pictures: the same use of a node has the same colour in each of them.

They are from Okabe and Ito's set, which people with any kind of colour vision can tell apart. The
dashboard in etc/dashboards has them too.
"""

from __future__ import annotations

OURS = "#009E73"
OTHERS = "#B8BEC6"
IDLE = "#E69F00"
RESERVED = "#CC79A7"
OUT = "#5B6470"
LOST = "#D55E00"
