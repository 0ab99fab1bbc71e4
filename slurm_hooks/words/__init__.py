"""The words that jobs write and the reconciler reads, spelt in one place for both sides.

The package is copied into the job path. It uses the standard library alone, of Python 3.9, and
imports nothing of the project.
"""
