"""The pages, one module for each thing that a person looks at."""
