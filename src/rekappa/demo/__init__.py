"""The demo: made-up events, and the story told with them."""
