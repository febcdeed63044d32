"""The local Kafka broker and catalog for the demo, development and tests."""
