"""What good nodes say of how such a node should be: captured as a baseline, or compared. Pure."""

from nodevet.learning.agree import Agreement, Difference, Expected, majority, unanimous
from nodevet.learning.alike import Alike, alike
from nodevet.learning.learn import Lesson, Lessons, learn

__all__ = [
    "Agreement",
    "Alike",
    "Difference",
    "Expected",
    "Lesson",
    "Lessons",
    "alike",
    "learn",
    "majority",
    "unanimous",
]
