"""What hostile users, files and machines did once. Slow tests are marked ``hostile``: ``make test-hostile``."""
