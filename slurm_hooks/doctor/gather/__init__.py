"""Read each fact once, or record why it could not be read."""
