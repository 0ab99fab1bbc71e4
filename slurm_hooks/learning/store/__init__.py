"""What jobs have shown of how they scale, kept between ticks in one SQLite file.

What it means is decided in `advisor`. No tick depends on the file: one that is lost, locked or
damaged costs what was learned, and running jobs tell it again.
"""
