"""`malleable doctor`: gather facts once, then judge them by pure checks."""
