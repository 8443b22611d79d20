"""What good nodes say of how such a node should be: captured as a baseline, or compared. Pure."""

from nodevet.learn.agree import Agreement, Difference, Expected, majority, unanimous
from nodevet.learn.alike import Alike, alike
from nodevet.learn.learn import Lesson, Lessons, learn

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
