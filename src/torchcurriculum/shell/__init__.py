"""What stands behind `Curriculum`: the order of rows, reading, measuring, steps, state, the record's summaries."""
