"""Lookups: tables that a job sees as they were at the time of each event."""
