"""Parents and parts that methods share; nothing here is a method by itself."""
