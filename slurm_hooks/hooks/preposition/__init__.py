"""Lay the environment that a malleable job names on the node's own disk, for a site's Prolog."""
