"""Parsers fed with damaged text: short in `make fast`, at length with `make fuzz`."""
