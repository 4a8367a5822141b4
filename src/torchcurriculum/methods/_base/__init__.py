"""Base classes and parts that methods share; nothing here is a complete method."""
