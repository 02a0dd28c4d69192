"""Tree search for board games of two players, in NumPy, for many games at once."""

from minding.engine.search.gumbel import GumbelOptions, gumbel
from minding.engine.search.opponents import match
from minding.engine.search.puct import PuctOptions, UctOptions, puct, uct
from minding.engine.search.search_tree import Evaluate, Found, Tree

__all__ = ["Evaluate", "Found", "GumbelOptions", "PuctOptions", "Tree", "UctOptions", "gumbel", "match", "puct", "uct"]
