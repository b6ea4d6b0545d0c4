"""The book of all spending: reserve, settle, charge. At no moment is spent + reserved above a limit.

Each function is one short transaction that commits by itself. Inside another transaction they refuse to run: a hold
that could still be rolled back protects nothing.
"""

from budgets.ledger.reserving import reserve, reserve_many
from budgets.ledger.settling import charge_expired, settle, settle_many
from budgets.ledger.values import LEASE, Hold, LedgerRefusal, Reserved, Settled, Settlement, UnknownHold

__all__ = [
    "LEASE",
    "Hold",
    "LedgerRefusal",
    "Reserved",
    "Settled",
    "Settlement",
    "UnknownHold",
    "charge_expired",
    "reserve",
    "reserve_many",
    "settle",
    "settle_many",
]
