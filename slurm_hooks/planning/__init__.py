"""A tick's decisions: a snapshot in, a plan out."""
