"""The words that jobs write and the reconciler reads, spelt in the same place for both sides.

The package is copied into the job path. It uses only the standard library of Python 3.9, and
imports no other module of the project.
"""
