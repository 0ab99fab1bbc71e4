"""One reader for each format of log, and what turns jobs into idle intervals of nodes."""
