"""Everything that knows how to start Spark and how to read a query plan."""
