"""What the jobs and the reconciler must agree on: the words they write, and the path of jobs.

The package is copied into the job path. It uses only the standard library of Python 3.9, and
imports no other package of the project.
"""
