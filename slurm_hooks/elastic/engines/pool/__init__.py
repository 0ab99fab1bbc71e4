"""Workers that never meet. Each runs its own command."""
