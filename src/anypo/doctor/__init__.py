"""What is wrong with a run: evidence, thresholds with their sources, and what to try."""

from anypo.doctor.diagnose import CHECKS, Diagnosis, diagnose, examine
from anypo.doctor.finding import SEVERITIES, Check, Finding, Unchecked
from anypo.doctor.live import Live
from anypo.doctor.read import read_run
from anypo.doctor.record import Record

__all__ = [
    "CHECKS",
    "SEVERITIES",
    "Check",
    "Diagnosis",
    "Finding",
    "Live",
    "Record",
    "Unchecked",
    "diagnose",
    "examine",
    "read_run",
]
