"""Where facts come from: each is read once, or it is said why it could not be read."""
