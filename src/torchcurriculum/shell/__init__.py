"""The parts of `Curriculum`: row order, reading, measuring, steps, state and the record's summaries."""
