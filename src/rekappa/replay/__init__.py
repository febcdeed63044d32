"""Reading past events in an order the job can trust."""
