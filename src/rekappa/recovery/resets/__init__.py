"""One way for each kind of sink to take back what abandoned batches wrote."""
