"""What both faces call: each operation a function of typed values, its answer the data of `--json`."""
