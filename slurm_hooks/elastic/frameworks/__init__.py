"""Frameworks whose users do not write the training loop: they survive a change of size by this
code.

Each framework has its own modules, which import it lazily. No other module knows it. This code runs
only in a malleable job's training processes.
"""
