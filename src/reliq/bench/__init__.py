"""
Measure the queue beside the raw limit of Postgres, and beside its peers.

Every contestant is a program that speaks the same few lines (`protocol.py`): reliq's own shipped
parts (`ours.py`), loops of bare statements on the same tables (`raw.py`), and whoever else is
given. A measure (`measures/`, one a file) plays them in turn, round by round, each on a fresh
database; what is compared is a pair of the same round.
"""
