"""Sending events to Kafka, each at its own place in time: from a file, or made up."""
