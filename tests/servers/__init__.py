"""Real servers for the tests, started from registry packages, each once per test run."""
