"""The rendezvous handler of torchrun, and its workers."""
