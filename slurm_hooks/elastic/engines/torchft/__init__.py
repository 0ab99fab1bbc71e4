"""torchft's lighthouse, which the agents keep themselves."""
