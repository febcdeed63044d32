"""Making a plan: the request, what the archive holds, the margins, the slices."""
