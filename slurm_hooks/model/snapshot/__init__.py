"""The snapshot of a tick as a file: its reader and its writer."""
