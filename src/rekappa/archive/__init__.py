"""The Iceberg tables that hold past events, and the router that fills them."""
