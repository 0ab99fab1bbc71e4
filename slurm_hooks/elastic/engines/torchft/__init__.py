"""torchft's lighthouse, kept by the agents themselves."""
