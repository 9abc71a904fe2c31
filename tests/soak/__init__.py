"""The soak: a whole system under random load and random faults, with an oracle beside it (`make soak`)."""
