"""
A machine that plays with the queue: the same call to the shipped SQL and to the model.

After every step all rows are equal. What is played is in the file of each subject; what happens
to single jobs is part of every game. Two things make it sharp: leases are never thrown away (see
`Player`), and a rule that needs a lease, or a job at a limit, makes one.
"""

from datetime import timedelta

from tests.model.database import Database
from tests.model.desk import Desk, DeskMoves
from tests.model.draws import ALERT_WINDOW, START
from tests.model.effects import EffectMoves, Effects
from tests.model.families import Families, FamilyMoves
from tests.model.groups import GroupMoves
from tests.model.jobs import JobMoves
from tests.model.limits import LimitMoves, Limits
from tests.model.player import Player

OVERLAP = timedelta(seconds=10)

SUBJECTS = (JobMoves, GroupMoves, LimitMoves, FamilyMoves, EffectMoves, DeskMoves)


class Model(Limits, Families, Effects, Desk):
    """The tables, and what every statement does to them."""


def new_machine(database: Database, *subjects: type[Player]) -> Player:
    """Build a machine that plays these subjects, and single jobs."""
    moves = tuple(dict.fromkeys((*subjects, JobMoves)))
    machine = type("QueueMachine", moves, {})(database)
    machine.model = Model(now=START, alert_window=ALERT_WINDOW, overlap=OVERLAP)
    return machine
