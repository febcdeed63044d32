"""Reading Spark's logical plans."""
