"""`malleable doctor`: facts are gathered once, then pure checks say what they mean."""
