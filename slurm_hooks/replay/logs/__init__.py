"""Readers for each format of log, and the step from jobs to idle intervals of nodes."""
