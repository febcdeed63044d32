"""Looking at what an app made: its sinks, staging, archive and dead letters, in SQL."""
