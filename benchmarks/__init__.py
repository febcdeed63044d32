"""What rekappa measures of itself. A benchmark is a module here with `main()`; see __main__.py."""
