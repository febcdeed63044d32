"""Tests without Spark and without a JVM."""
