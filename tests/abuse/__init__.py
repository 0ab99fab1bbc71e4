"""What an ordinary user can do to the rest of us: `make abuse`."""
