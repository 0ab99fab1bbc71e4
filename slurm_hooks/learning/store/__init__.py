"""What jobs have shown of how they scale, kept between ticks in one SQLite file.

The modules above decide what it means. No tick depends on the file: one that is lost, locked or
damaged costs what was learned, and running jobs tell it again.
"""
