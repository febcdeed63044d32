"""What a person would otherwise write by hand to keep an app running: Kubernetes objects, systemd units."""
