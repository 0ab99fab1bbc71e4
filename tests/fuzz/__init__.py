"""Parsers fed with what nobody would write: short in `make fast`, at length with `make fuzz`."""
