"""Puts the demo's package where its tests find it, and makes small recordings for them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
