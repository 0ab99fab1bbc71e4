"""The snapshot of a tick as a file: its schema, its reader and its writer."""
