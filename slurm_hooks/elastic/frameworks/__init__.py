"""Frameworks whose users do not write the training loop: what makes them survive a change of size.

One module for each framework, which is the only one that knows it and imports it lazily. Nothing
here runs outside of a malleable job's training processes.
"""
