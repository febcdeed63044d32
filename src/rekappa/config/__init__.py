"""Configuration: rekappa.yaml, the environment and --set, typed and explained."""
