"""Who computes what in the next step. Pure: no torch, no clock, no I/O."""
