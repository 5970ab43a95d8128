"""The client side: the bus to the broker, and the runs and sessions that a program handles through it."""
