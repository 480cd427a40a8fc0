"""The rules of reliq, pure: no clock, no dice, no sockets, no logs."""
