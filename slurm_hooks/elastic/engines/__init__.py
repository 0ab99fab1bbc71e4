"""The engines, a folder each. They do not know each other."""
