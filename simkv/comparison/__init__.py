"""Up to four settings on the same traffic: one table, and why they differ."""

from simkv.comparison.choices import MOST, Choice, choices
from simkv.comparison.comparison import Comparison, Side, compare
from simkv.comparison.explain import Explanation, explain

__all__ = ["MOST", "Choice", "Comparison", "Explanation", "Side", "choices", "compare", "explain"]
