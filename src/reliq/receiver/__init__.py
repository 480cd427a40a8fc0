"""The receiver: deliveries come in by HTTP and leave as events and jobs, in one commit."""
