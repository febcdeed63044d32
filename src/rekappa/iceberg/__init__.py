"""All that speaks Iceberg: catalogs, files and their bounds, commits, history, replacing a window."""
